//! Spread mode: an engine that receives for other threads too. It matches all frames, and hands those of messages that are at home
//! elsewhere over by lanes, as a [`Receiver`](crate::receiver::Receiver) does; its own go on as if it were alone.

use spin_abi::counters::Counter;
use spin_nic::Frame;

use crate::core::Core;
use crate::egress::Egress;
use crate::inbound::{BATCH, Routes};
use crate::ingress::Ingress;
use crate::lanes::Lanes;
use crate::pipeline::Engine;
use crate::toll::{PASSED, PASSING};

/// What an engine has that receives for others.
#[derive(Debug)]
pub(crate) struct Spread {
    lanes: Lanes,
    /// Where frames go, of all threads: to contexts that each of them has.
    routes: Routes,
    /// The last turn had something to do for others.
    busy: bool,
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
        self.core.egress.reserve(lanes.size());
        self.core.egress.passing.reserve(self.core.egress.passing.capacity() + PASSING);
        self.core.egress.toll = lanes.toll().clone();
        self.spread = Some(Box::new(Spread {
            lanes,
            routes: Routes::default(),
            busy: false,
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
        let Self { spread: Some(spread), core: Core { egress: Egress { outbound, passing, .. }, nic, .. }, .. } = self
        else {
            return;
        };
        spread.busy = spread.lanes.take_back([&mut outbound.recycle, &mut outbound.transmit, passing]) > 0;
        if spread.busy {
            outbound.flush(&mut **nic);
        }
    }

    /// Takes frames from the NIC, so many that about `wanted` of them are its own, of which there is room for as many as there are HERs;
    /// and hands others' over. Returns how many are its own.
    pub(crate) fn receive_and_spread(&mut self, wanted: usize) -> usize {
        let Self { spread: Some(spread), core: Core { nic, telemetry, table, .. }, ingress, .. } = self else {
            return 0;
        };
        let (Ingress { inbound, catch_up, .. }, counts) = (ingress, &mut telemetry.counts);
        let room = spread.lanes.all_for(wanted).min(table.mpqs.room()).min(spread.lanes.credit()).min(BATCH);
        if room == 0 {
            counts.add(Counter::HerStalls, 1);
            return 0;
        }
        let taken = inbound.receive(&mut **nic, &spread.routes, room, counts, |_, _| 0);
        if taken == 0 {
            return 0;
        }
        catch_up.whole = taken == room;
        spread.busy = true;
        while let Some((frame, found)) = inbound.take() {
            match spread.lanes.lane_of(&found) {
                Some(lane) => lane.stage(frame, &found),
                None => inbound.put_aside(frame),
            }
        }
        inbound.put_back();
        inbound.len()
    }

    /// Frames that others have.
    pub(crate) fn out_on_lanes(&self) -> usize {
        self.spread.as_ref().map_or(0, |spread| spread.lanes.out())
    }

    /// Whether there is something to do for others, or was in the last turn.
    pub(crate) fn is_busy_for_others(&self) -> bool {
        self.spread
            .as_ref()
            .is_some_and(|spread| spread.busy || spread.lanes.has_news() || !self.core.egress.passing.is_empty())
    }

    /// Hands over what others are to have, before anything is run here.
    #[inline]
    pub(crate) fn hand_over(&mut self) {
        if let Self { spread: Some(spread), core: Core { nic, .. }, .. } = self {
            spread.lanes.hand_over(|| nic.allocate());
        }
    }
}
