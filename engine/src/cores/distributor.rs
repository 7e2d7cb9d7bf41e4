//! The distributor of pipeline mode. It receives and matches the packets of all workers, and hands each packet to the home worker
//! of its message. With a local share it is part of a worker, which keeps that share of the messages: [`LocalShare`]. Without one
//! it has a thread of its own that runs no handlers: [`ReceiveOnly`].
//!
//! [`LocalShare`]: crate::cores::local_share::LocalShare
//! [`ReceiveOnly`]: crate::cores::receive_only::ReceiveOnly

use std::time::Duration;

use spin_nic::{Frame, Queue};
use spin_pspin::counts::Counts;
use spin_pspin::ids::Slot;

use crate::cores::packet_channels::PacketChannels;
use crate::egress::pass_cost::MAX_PASSED;
use crate::ingress::matched::Match;
use crate::ingress::rx_batch::{RoutingTable, RxBatch};

/// Channels to other workers, and the routes of all packets.
#[derive(Debug)]
pub(crate) struct Distributor {
    pub(crate) channels: PacketChannels,
    pub(crate) routes: RoutingTable,
    /// Scratch list of the frames that are passed to the kernel in a poll.
    passed: Vec<Frame>,
}

impl Distributor {
    pub(crate) fn new(channels: PacketChannels) -> Self {
        Self { channels, routes: RoutingTable::default(), passed: Vec::with_capacity(MAX_PASSED) }
    }

    /// Receives and matches at most `room` packets. Returns how many.
    pub(crate) fn receive(&self, nic: &mut dyn Queue, batch: &mut RxBatch, room: usize, counts: &mut Counts) -> usize {
        batch.receive(nic, &self.routes, room, counts, |_, _| 0)
    }

    /// Stages the packets of a batch for their home workers. `handed` is called with the context of each. `local` takes all other
    /// packets, or returns their frames to `recycle`. Packets beyond their context's quota of a channel are recycled too; the
    /// channel counts them.
    pub(crate) fn distribute(
        &mut self,
        batch: &mut RxBatch,
        recycle: &mut Vec<Frame>,
        mut handed: impl FnMut(Slot),
        mut local: impl FnMut(&mut RxBatch, Frame, Match) -> Option<Frame>,
    ) {
        while let Some((frame, found)) = batch.take() {
            let Some(channel) = self.channels.channel_of(&found, &self.routes.homes) else {
                recycle.extend(local(batch, frame, found));
                continue;
            };
            handed(found.owner);
            if channel.admits(found.owner) {
                channel.stage(frame, &found);
            } else {
                recycle.push(frame);
            }
        }
    }

    /// Passes a bounded number of the waiting frames to the kernel, and drops those beyond another bound. Returns how many it
    /// dropped.
    #[cold]
    pub(crate) fn pass_bounded(
        &mut self,
        nic: &mut dyn Queue,
        waiting: &mut Vec<Frame>,
        clock: impl Fn() -> Duration,
    ) -> u64 {
        self.channels.pass_cost().pass_bounded(nic, waiting, &mut self.passed, clock)
    }
}
