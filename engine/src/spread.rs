//! Spread mode: an engine that receives for other threads too. It matches all frames, and hands those of messages that are at home
//! elsewhere over by lanes, as a [`Receiver`](crate::receiver::Receiver) does; its own go on as if it were alone.

use spin_abi::counters::Counter;
use spin_nic::Frame;

use crate::inbound::{BATCH, Routes};
use crate::lanes::Lanes;
use crate::pipeline::{Engine, context};
use crate::toll::{PASSED, PASSING};

/// What an engine has that receives for others.
#[derive(Debug)]
pub(crate) struct Spread {
    lanes: Lanes,
    /// Where frames go, of all threads: to contexts that each of them has.
    routes: Routes,
    /// The last turn had something to do for others.
    busy: bool,
    /// Nearly all of the last batch were its own.
    mostly_own: bool,
    /// Frames that the kernel gets in a turn.
    passed: Vec<Frame>,
}

impl Spread {
    /// A list for those that the kernel gets in a turn.
    pub(crate) const fn passed(&mut self) -> &mut Vec<Frame> {
        &mut self.passed
    }
}

impl Engine {
    /// Has it receive for the threads that these lanes lead to, too.
    #[must_use]
    pub fn spreading(mut self, lanes: Lanes) -> Self {
        // All that others have may come back in one turn.
        let most = lanes.size();
        for list in [&mut self.outbound.transmit, &mut self.outbound.spent, &mut self.passing] {
            list.reserve(list.capacity() + most);
        }
        self.passing.reserve(self.passing.capacity() + PASSING);
        self.toll = lanes.toll().clone();
        self.spread = Some(Box::new(Spread {
            lanes,
            routes: Routes::default(),
            busy: false,
            mostly_own: false,
            passed: Vec::with_capacity(PASSED),
        }));
        self
    }

    /// Where frames go that are received from here on, if it receives for others too. The NIC is to be told apart: see
    /// [`spin_nic::Queue::steering`].
    pub fn lead(&mut self, routes: Routes) {
        if let Some(spread) = &mut self.spread {
            spread.routes = routes;
        }
    }

    /// Takes frames back that others are done with. They go to the NIC at once: it may have none left to be [handed
    /// over](Engine::hand_over).
    #[inline]
    pub(crate) fn take_back_frames(&mut self) {
        let Self { spread, outbound, passing, nic, arrivals, contexts, intake, mpqs, .. } = self;
        if let Some(arrivals) = arrivals {
            arrivals.read_drops(|slot, count| {
                if let Some(Some(context)) = contexts.get_mut(slot.0 as usize) {
                    context.counts.add(Counter::DropShare, count);
                }
            });
            if intake.looks_for_others() && !intake.is_wanted() {
                // They may be behind packets of the context whose tasks took so long.
                if arrivals.has_any(intake.worth_a_look(), |slot| mpqs.held(slot.0) == 0) {
                    intake.expect();
                }
            }
        }
        let Some(spread) = spread else { return };
        spread.busy = spread.lanes.take_back([&mut outbound.spent, &mut outbound.transmit, passing]) > 0;
        if spread.busy {
            outbound.leave(&mut **nic);
        }
    }

    /// How many of `wanted` frames there is room for. Where several contexts share the thread, one that receives for others goes on without
    /// HERs: others have room.
    #[inline]
    pub(crate) fn room_for(&self, wanted: usize) -> usize {
        let goes_on = self.spread.is_some() && self.is_shared() && !self.waits;
        if goes_on { wanted } else { self.mpqs.room().min(wanted) }
    }

    /// Takes frames from the NIC, so many that about `wanted` of them are its own, and hands others' over. Its own for which there is no
    /// HER are dropped. Returns how many are its own.
    pub(crate) fn receive_and_spread(&mut self, wanted: usize) -> usize {
        let mut hers = self.mpqs.room();
        let all = if self.is_shared() && !self.waits { usize::MAX } else { hers };
        let Self { spread: Some(spread), nic, inbound, intake, counts, mpqs, contexts, outbound, .. } = self else {
            return 0;
        };
        // A flow that is at home here may send all there is: then no more is taken than there is time for.
        let wanted = if spread.mostly_own { wanted } else { spread.lanes.all_for(wanted) };
        let room = wanted.min(all).min(spread.lanes.begin_batch()).min(BATCH);
        if room == 0 {
            counts.add(Counter::HerStalls, 1);
            return 0;
        }
        let taken = inbound.receive(&mut **nic, &spread.routes, room, counts, |_, _| 0);
        if taken == 0 {
            return 0;
        }
        intake.whole = taken == room;
        let (looks, mut first) = (intake.looks_for_others(), None);
        spread.busy = true;
        while let Some((frame, found)) = inbound.take() {
            match spread.lanes.lane_of(&found) {
                Some(lane) => {
                    if looks {
                        let several = *first.get_or_insert(found.owner) != found.owner;
                        intake.others |= several || mpqs.held(found.owner.0) == 0;
                    }
                    if lane.admits(found.owner) {
                        lane.stage(frame, &found);
                    } else {
                        outbound.spent.push(frame);
                    }
                }
                None if hers > 0 || found.slot().is_none() => {
                    hers = hers.saturating_sub(1);
                    inbound.put_aside(frame);
                }
                None => {
                    context(contexts, found.owner).counts.add(Counter::DropShare, 1);
                    outbound.spent.push(frame);
                }
            }
        }
        inbound.put_back();
        spread.mostly_own = inbound.len() * 4 > taken * 3;
        inbound.len()
    }

    /// Frames that others have.
    pub(crate) fn out_on_lanes(&self) -> usize {
        self.spread.as_ref().map_or(0, |spread| spread.lanes.out())
    }

    /// Whether there is something to do for others, or was in the last turn.
    pub(crate) fn is_busy_for_others(&self) -> bool {
        self.spread.as_ref().is_some_and(|spread| spread.busy || spread.lanes.has_news() || !self.passing.is_empty())
    }

    /// Hands over what others are to have, before anything is run here.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        if let Self { spread: Some(spread), nic, .. } = self {
            spread.lanes.hand_over(|| nic.allocate());
        }
    }
}
