//! Classification results of the packets on a channel between threads, in rings beside that of the frames.

use spin_matcher::MessageKey;
use spin_pspin::ids::Slot;
use spin_sync::{SidebandRx, SidebandTx, sideband};

use crate::ingress::matched::Match;

/// Match of a packet, with the first 16 bytes of its key. Few keys are longer. Their tails go through a sideband of their own,
/// since cross-core traffic costs per cache line.
#[derive(Clone, Copy, Debug)]
struct PacketMeta {
    owner: Slot,
    end_of_message: bool,
    length: u8,
    key: [u64; 2],
}

/// The sender's end.
#[derive(Debug)]
pub(crate) struct MetaTx {
    found: SidebandTx<PacketMeta>,
    /// Tails of the keys that are longer than 16 bytes.
    rest: SidebandTx<[u64; 4]>,
}

/// The receiver's end.
#[derive(Debug)]
pub(crate) struct MetaRx {
    found: SidebandRx<PacketMeta>,
    rest: SidebandRx<[u64; 4]>,
}

/// The ends of a channel for at most `size` packets in transit.
pub(crate) fn packet_meta(size: usize) -> (MetaTx, MetaRx) {
    let ((found, found_rx), (rest, rest_rx)) = (sideband(size), sideband(size));
    (MetaTx { found, rest }, MetaRx { found: found_rx, rest: rest_rx })
}

impl MetaTx {
    /// Stages the match of a packet that is staged.
    #[inline]
    pub(crate) fn stage(&mut self, found: &Match) {
        let ((key, length), rest) = found.key.split();
        let &Match { owner, end_of_message, .. } = found;
        self.found.staged.push(PacketMeta { owner, end_of_message, length, key });
        if let Some(rest) = rest {
            self.rest.staged.push(rest);
        }
    }

    /// Discards what is staged.
    pub(crate) fn unstage(&mut self) {
        self.found.staged.clear();
        self.rest.staged.clear();
    }

    /// Writes the first `count` staged matches, before their packets are sent.
    pub(crate) fn write(&mut self, count: usize) {
        if !self.rest.staged.is_empty() {
            let long = self.found.staged[..count].iter().filter(|meta| MessageKey::goes_on(meta.length)).count();
            self.rest.write(long);
        }
        self.found.write(count);
    }
}

impl MetaRx {
    /// Reads the matches of the next `count` packets, which the caller has taken.
    #[inline]
    pub(crate) fn read(&mut self, count: usize, mut found: impl FnMut(Match)) {
        let rest = &mut self.rest;
        self.found.read(count, |meta| {
            let &PacketMeta { owner, end_of_message, length, key } = meta;
            let key = MessageKey::join((key, length), || {
                let mut behind = [0; 4];
                rest.read(1, |&rest| behind = rest);
                behind
            });
            found(Match { owner, end_of_message, key });
        });
    }

    /// Whether one of the next `max` packets belongs to a context that `is_wanted`.
    #[cold]
    pub(crate) fn has_any(&mut self, max: usize, is_wanted: impl Fn(Slot) -> bool) -> bool {
        let mut found = false;
        self.found.peek(max, |metas| found |= metas.iter().any(|meta| is_wanted(meta.owner)));
        found
    }
}
