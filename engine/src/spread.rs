//! Spread mode: an engine that receives for other threads too. It matches all frames, and hands those of messages that are at home
//! elsewhere over by lanes, as a [`Receiver`](crate::receiver::Receiver) does; its own go on as if it were alone.

use spin_abi::counters::Counter;

use crate::handover::Back;
use crate::inbound::{BATCH, Routes};
use crate::lanes::{LANE, Lanes};
use crate::pipeline::Engine;

/// What an engine has that receives for others.
#[derive(Debug)]
pub(crate) struct Spread {
    lanes: Lanes,
    /// Where frames go, of all threads: to contexts that each of them has.
    routes: Routes,
    /// The last turn had something to do for others.
    busy: bool,
}

impl Spread {
    /// Frames that others have.
    pub(crate) fn out(&self) -> usize {
        self.lanes.out()
    }

    /// Whether there is something to do, or was in the last turn.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy || self.lanes.has_news()
    }
}

impl Engine {
    /// Has it receive for the threads that these lanes lead to, too.
    #[must_use]
    pub fn spreading(mut self, lanes: Lanes) -> Self {
        // All that others have may come back in one turn.
        let most = LANE * lanes.len();
        for list in [&mut self.outbound.transmit, &mut self.outbound.spent, &mut self.passing] {
            list.reserve(list.capacity() + most);
        }
        self.spread = Some(Box::new(Spread { lanes, routes: Routes::default(), busy: false }));
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
        let Self { spread: Some(spread), outbound, passing, nic, .. } = self else { return };
        let returned = spread.lanes.take_back(|frame, back| match back {
            Back::Spent => outbound.spent.push(frame),
            Back::Outgoing => outbound.transmit.push(frame),
            Back::Passing => passing.push(frame),
        });
        spread.busy = returned > 0;
        if spread.busy {
            outbound.leave(&mut **nic);
        }
    }

    /// Takes frames from the NIC, so many that about `wanted` of them are its own, of which there is room for as many as there are HERs;
    /// and hands others' over. Returns how many are its own.
    pub(crate) fn receive_and_spread(&mut self, wanted: usize) -> usize {
        let Self { spread: Some(spread), nic, inbound, counts, mpqs, .. } = self else { return 0 };
        let room = spread.lanes.all_for(wanted).min(mpqs.room()).min(spread.lanes.credit()).min(BATCH);
        if room == 0 {
            counts.add(Counter::HerStalls, 1);
            return 0;
        }
        if inbound.receive(&mut **nic, &spread.routes, room, counts) == 0 {
            return 0;
        }
        spread.busy = true;
        while let Some((frame, found)) = inbound.take() {
            match spread.lanes.lane_of(found).filter(|_| found.slot().is_some()) {
                Some(lane) => lane.stage(frame, found),
                None => inbound.put_aside(frame),
            }
        }
        inbound.put_back();
        inbound.len()
    }

    /// Hands over what others are to have, before anything is run here.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        if let Self { spread: Some(spread), nic, .. } = self {
            spread.lanes.hand_over(|| nic.allocate());
        }
    }
}
