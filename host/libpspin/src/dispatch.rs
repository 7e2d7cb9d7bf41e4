//! Task dispatch: the cluster of a task, and when it may begin there (PsPIN paper §III-B).

use std::collections::VecDeque;

use spin_abi::map::PACKET_WINDOW;
use spin_pspin::hpu::memory::HpuId;

use crate::MACHINE;
use crate::time::{Picos, moved};

/// Tasks that a cluster buffers before they run.
const BUFFERED: usize = 12;
/// Bytes of a cluster's L1 that hold packets.
pub const L1_PACKETS: u32 = MACHINE.hpus_per_cluster * PACKET_WINDOW;

/// A cluster's state in the dispatcher.
#[derive(Debug)]
struct Cluster<T> {
    /// Buffered tasks in order, each with the time when its packet is in L1.
    waiting: VecDeque<(T, Picos)>,
    /// Idle HPUs as a bit mask.
    idle: u32,
    /// L1 bytes used by the packets of all its tasks.
    l1_used: usize,
    /// Time when its DMA engine has finished all queued copies.
    copied: Picos,
}

impl<T> Cluster<T> {
    fn takes(&self, bytes: usize) -> bool {
        self.waiting.len() < BUFFERED && self.l1_used + bytes <= L1_PACKETS as usize
    }

    fn load(&self) -> u32 {
        MACHINE.hpus_per_cluster - self.idle.count_ones() + u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }
}

/// All clusters.
#[derive(Debug)]
pub struct Dispatcher<T> {
    clusters: Vec<Cluster<T>>,
}

impl<T> Default for Dispatcher<T> {
    fn default() -> Self {
        let idle = (1 << MACHINE.hpus_per_cluster) - 1;
        let cluster = |_| Cluster { waiting: VecDeque::new(), idle, l1_used: 0, copied: 0 };
        Self { clusters: (0..MACHINE.clusters).map(cluster).collect() }
    }
}

impl<T> Dispatcher<T> {
    /// Returns the cluster for a task whose message has the home cluster `home`: the home cluster if it has room, else
    /// the least loaded one. Of equally loaded clusters the first is chosen.
    #[must_use]
    pub fn place(&self, home: u32, bytes: usize) -> Option<u32> {
        if self.clusters[home as usize].takes(bytes) {
            return Some(home);
        }
        let takes = (0..MACHINE.clusters).filter(|&cluster| self.clusters[cluster as usize].takes(bytes));
        takes.min_by_key(|&cluster| self.clusters[cluster as usize].load())
    }

    /// Queues a task on a cluster, which copies its packet to L1. Returns the time when the copy is complete.
    pub fn send(&mut self, cluster: u32, task: T, bytes: usize, now: Picos) -> Picos {
        let cluster = &mut self.clusters[cluster as usize];
        cluster.copied = cluster.copied.max(now).saturating_add(moved(bytes));
        cluster.l1_used += bytes;
        cluster.waiting.push_back((task, cluster.copied));
        cluster.copied
    }

    /// Returns the next task that can begin on a cluster. Tasks begin in order, on the lowest-numbered idle HPU.
    pub fn start(&mut self, cluster: u32, now: Picos) -> Option<(HpuId, T)> {
        let number = cluster;
        let cluster = &mut self.clusters[cluster as usize];
        let hpu = cluster.idle.trailing_zeros();
        if cluster.idle == 0 || cluster.waiting.front().is_none_or(|(_, copied)| *copied > now) {
            return None;
        }
        let (task, _) = cluster.waiting.pop_front()?;
        cluster.idle &= !(1 << hpu);
        Some((HpuId { cluster: number, hpu }, task))
    }

    /// Marks an HPU as idle after a task whose packet had `bytes` in L1.
    pub fn end(&mut self, hpu: HpuId, bytes: usize) {
        let cluster = &mut self.clusters[hpu.cluster as usize];
        cluster.idle |= 1 << hpu.hpu;
        cluster.l1_used = cluster.l1_used.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use spin_pspin::hpu::memory::HpuId;

    use super::Dispatcher;

    #[test]
    fn the_home_cluster_comes_first_then_the_least_loaded() {
        let mut dispatcher = Dispatcher::default();
        for task in 0..12 {
            assert_eq!(dispatcher.place(2, 64), Some(2));
            dispatcher.send(2, task, 64, 0);
        }
        assert_eq!(dispatcher.place(2, 64), Some(0), "12 tasks are buffered");
        dispatcher.send(0, 12, 64, 0);
        assert_eq!(dispatcher.place(2, 64), Some(1));
        assert_eq!(dispatcher.start(2, 999), None, "the first is not copied");
        assert_eq!(dispatcher.start(2, 1000), Some((HpuId { cluster: 2, hpu: 0 }, 0)));
        assert_eq!(dispatcher.start(2, 1000), None);
        assert_eq!(dispatcher.place(2, 64), Some(2), "there is room again");
    }

    #[test]
    fn l1_holds_so_many_bytes() {
        let mut dispatcher = Dispatcher::default();
        for cluster in 0..4 {
            for task in 0..8 {
                dispatcher.send(cluster, task, 4096, 0);
            }
        }
        assert_eq!(dispatcher.place(3, 1), None);
        assert_eq!(dispatcher.place(3, 0), Some(3), "nothing is copied");
        let (hpu, _) = dispatcher.start(1, u64::MAX).expect("copied");
        assert_eq!(dispatcher.place(3, 4096), None, "it is still there");
        dispatcher.end(hpu, 4096);
        assert_eq!(dispatcher.place(3, 4096), Some(1));
    }

    #[test]
    fn tasks_take_the_lowest_idle_hpu() {
        let mut dispatcher = Dispatcher::default();
        let mut start = |task| {
            dispatcher.send(0, task, 0, 0);
            dispatcher.start(0, 0).map(|(hpu, _)| hpu.hpu)
        };
        assert_eq!((start(0), start(1), start(2)), (Some(0), Some(1), Some(2)));
        dispatcher.end(HpuId { cluster: 0, hpu: 1 }, 0);
        dispatcher.send(0, 3, 0, 0);
        assert_eq!(dispatcher.start(0, 0), Some((HpuId { cluster: 0, hpu: 1 }, 3)));
        for task in 4..10 {
            dispatcher.send(0, task, 0, 0);
        }
        let started: Vec<_> = std::iter::from_fn(|| dispatcher.start(0, 0)).map(|(hpu, _)| hpu.hpu).collect();
        assert_eq!(started, [3, 4, 5, 6, 7]);
    }
}
