//! Links outside the clusters that take time: the network and the host's bus.

use std::collections::VecDeque;

use crate::conf::Settings;
use crate::time::{Picos, moved};

/// A server that processes requests one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    free: Picos,
}

impl Server {
    /// Returns the completion time of a request that arrives at `at` and takes `time`.
    const fn serve(&mut self, at: Picos, time: Picos) -> Picos {
        let start = if at > self.free { at } else { self.free };
        self.free = start.saturating_add(time);
        self.free
    }
}

/// Returns the time of `bytes` bytes at `nanoseconds` each.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates; settings are not negative")]
fn gap(bytes: usize, nanoseconds: f64) -> Picos {
    (bytes as f64 * nanoseconds * 1000.0).round() as Picos
}

/// The outbound engine. It fetches packets from NIC memory into a queue, from which the network takes them.
#[derive(Debug)]
pub struct Outbound {
    network_g: f64,
    max_packet: usize,
    most_waiting: usize,
    fetch: Server,
    network: Server,
    /// Departure time of each packet that is or was in the queue.
    leaving: VecDeque<Picos>,
}

impl Outbound {
    /// Makes an idle engine.
    #[must_use]
    pub const fn new(settings: &Settings) -> Self {
        let (fetch, network) = (Server { free: 0 }, Server { free: 0 });
        let Settings { network_g, max_packet, network_queue: most_waiting, .. } = *settings;
        Self { network_g, max_packet, most_waiting, fetch, network, leaving: VecDeque::new() }
    }

    /// Sends bytes from `at` on. `packet` is called with each resulting packet and its departure time. Returns the time
    /// when the last packet entered the queue, at which the command is complete.
    pub fn send(&mut self, at: Picos, bytes: Vec<u8>, mut packet: impl FnMut(Picos, Vec<u8>)) -> Picos {
        if bytes.len() <= self.max_packet {
            let (queued, left) = self.send_packet(at, bytes.len());
            packet(left, bytes);
            return queued;
        }
        let mut complete = at;
        for piece in bytes.chunks(self.max_packet) {
            let (queued, left) = self.send_packet(at, piece.len());
            packet(left, piece.to_vec());
            complete = queued;
        }
        complete
    }

    fn send_packet(&mut self, at: Picos, len: usize) -> (Picos, Picos) {
        // A full queue stalls the engine's fetches.
        let full = self.leaving.len() >= self.most_waiting;
        let room = if full { self.leaving.pop_front().unwrap_or(0) } else { 0 };
        let queued = self.fetch.serve(at.max(room), moved(len));
        let left = self.network.serve(queued, gap(len, self.network_g));
        self.leaving.push_back(left);
        (queued, left)
    }
}

/// The host's bus: one channel for writes and one for reads.
#[derive(Debug)]
pub struct Pcie {
    gap: f64,
    latency: Picos,
    writes: Server,
    reads: Server,
}

impl Pcie {
    /// Makes an idle bus.
    #[must_use]
    pub const fn new(settings: &Settings) -> Self {
        let latency = settings.pcie_l as Picos * 1000;
        Self { gap: settings.pcie_g, latency, writes: Server { free: 0 }, reads: Server { free: 0 } }
    }

    /// Returns the arrival time of bytes that are written from `at` on.
    pub fn write(&mut self, at: Picos, len: usize) -> Picos {
        self.writes.serve(at, gap(len, self.gap)).saturating_add(self.latency)
    }

    /// Returns the arrival time of bytes that are requested at `at`.
    pub fn read(&mut self, at: Picos, len: usize) -> Picos {
        self.reads.serve(at, gap(len, self.gap)).saturating_add(self.latency)
    }
}

/// All links of the machine.
#[derive(Debug)]
pub struct Links {
    /// Link to the network.
    pub outbound: Outbound,
    /// Bytes of packets that wait in `outbound`.
    pub staged: usize,
    /// Bus for handlers' accesses to host memory.
    pub pcie: Pcie,
    /// Bus for the program's accesses to NIC memory.
    pub master: Pcie,
}

impl Links {
    /// Makes idle links.
    #[must_use]
    pub const fn new(settings: &Settings) -> Self {
        Self { outbound: Outbound::new(settings), staged: 0, pcie: Pcie::new(settings), master: Pcie::new(settings) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Outbound, Pcie};
    use crate::conf::Settings;

    fn sent(outbound: &mut Outbound, at: u64, len: usize) -> (u64, Vec<(u64, usize)>) {
        let mut packets = Vec::new();
        let complete = outbound.send(at, vec![0; len], |left, bytes| packets.push((left, bytes.len())));
        (complete, packets)
    }

    #[test]
    fn long_sends_become_packets() {
        let mut outbound = Outbound::new(&Settings { max_packet: 100, ..Settings::default() });
        assert_eq!(sent(&mut outbound, 5000, 250), (10_000, vec![(7000, 100), (9000, 100), (10_000, 50)]));
    }

    #[test]
    fn a_slow_network_holds_commands_back_when_its_queue_is_full() {
        let settings = Settings { network_g: 1.0, network_queue: 2, ..Settings::default() };
        let mut outbound = Outbound::new(&settings);
        let times: Vec<_> = (0..4).map(|_| sent(&mut outbound, 0, 64)).collect();
        assert_eq!(times[0], (1000, vec![(65_000, 64)]));
        assert_eq!(times[1], (2000, vec![(129_000, 64)]));
        assert_eq!(times[2], (66_000, vec![(193_000, 64)]), "when the first has left");
        assert_eq!(times[3], (130_000, vec![(257_000, 64)]));
    }

    #[test]
    fn the_bus_has_latency_and_gap_each_way() {
        let mut pcie = Pcie::new(&Settings { pcie_g: 0.5, pcie_l: 3, ..Settings::default() });
        assert_eq!((pcie.write(0, 64), pcie.write(0, 64), pcie.read(0, 2)), (35_000, 67_000, 4000));
        assert_eq!(pcie.read(u64::MAX, 64), u64::MAX);
    }
}
