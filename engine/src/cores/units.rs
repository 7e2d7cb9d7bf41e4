//! Units: each is a PsPIN unit with clusters, L1s and message queues of its own, on cores of one NUMA node.

use std::ops::Range;

/// A worker's part of the units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPart {
    /// The index of the worker among all workers.
    pub worker: u16,
    /// The unit.
    pub unit: u32,
    /// Its share of the unit's clusters.
    pub clusters: Range<u32>,
}

/// The part of the first worker of the only unit.
impl From<Range<u32>> for UnitPart {
    fn from(clusters: Range<u32>) -> Self {
        Self { worker: 0, unit: 0, clusters }
    }
}

/// A worker to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedWorker {
    /// Its core. `None`: any.
    pub core: Option<usize>,
    /// The core of this machine that it runs on: another one only where a description of another machine is used.
    pub runs_on: Option<usize>,
    /// The NUMA node of that core.
    pub node: u32,
    /// Its unit and clusters.
    pub part: UnitPart,
}

/// A worker on any core.
impl From<UnitPart> for PlannedWorker {
    fn from(part: UnitPart) -> Self {
        Self { core: None, runs_on: None, node: 0, part }
    }
}

/// A number of units that these cores cannot be divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "units = {units}: give {least} to {most} for these cores (a unit has {clusters} clusters, a cluster one core at most)"
)]
pub struct BadUnits {
    /// The number that was given.
    pub units: u32,
    /// The least and the greatest possible number.
    pub least: u32,
    /// See `least`.
    pub most: u32,
    /// Clusters of a unit.
    pub clusters: u32,
}

/// Divides cores into units of `clusters` clusters. `node` returns a core's NUMA node. Cores of one node stay in their order; nodes are in
/// the order of their first cores. `units`: the number of units, or as few as possible. Without cores there is one worker.
///
/// # Errors
/// See [`BadUnits`].
pub fn plan(
    cores: &[usize],
    node: impl Fn(usize) -> u32,
    clusters: u32,
    units: Option<u32>,
) -> Result<Vec<PlannedWorker>, BadUnits> {
    let all: Vec<_> = if cores.is_empty() {
        vec![(0, vec![None])]
    } else {
        by_node(cores, node).into_iter().map(|(node, cores)| (node, cores.into_iter().map(Some).collect())).collect()
    };
    let mut counts: Vec<usize> = all.iter().map(|(_, cores)| cores.len().div_ceil(clusters as usize)).collect();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (least, most) = (count(counts.iter().sum()), count(cores.len().max(1)));
    let units = units.unwrap_or(least);
    if !(least..=most).contains(&units) {
        return Err(BadUnits { units, least, most, clusters });
    }
    for _ in least..units {
        // The node whose units have most cores gets one more.
        let fullest = (0..all.len()).max_by(|&a, &b| (all[a].1.len() * counts[b]).cmp(&(all[b].1.len() * counts[a])));
        fullest.into_iter().for_each(|node| counts[node] += 1);
    }
    let mut workers = Vec::new();
    let mut unit = 0;
    for ((node, cores), units) in all.into_iter().zip(counts) {
        let part = |index: usize| cores.len() * index / units;
        for number in 0..units {
            let own = &cores[part(number)..part(number + 1)];
            let share = |thread: usize| clusters * count(thread) / count(own.len());
            workers.extend(own.iter().enumerate().map(|(thread, &core)| PlannedWorker {
                core,
                runs_on: core,
                node,
                part: UnitPart { worker: 0, unit, clusters: share(thread)..share(thread + 1) },
            }));
            unit += 1;
        }
    }
    for (index, worker) in (0..).zip(&mut workers) {
        worker.part.worker = index;
    }
    Ok(workers)
}

/// The number of units of these workers.
#[must_use]
pub fn count_units(workers: &[PlannedWorker]) -> u32 {
    workers.last().map_or(1, |worker| worker.part.unit + 1)
}

/// Cores by node.
fn by_node(cores: &[usize], node: impl Fn(usize) -> u32) -> Vec<(u32, Vec<usize>)> {
    let mut nodes: Vec<(u32, Vec<usize>)> = Vec::new();
    for &core in cores {
        let of = node(core);
        match nodes.iter_mut().find(|(number, _)| *number == of) {
            Some((_, cores)) => cores.push(core),
            None => nodes.push((of, vec![core])),
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BadUnits, PlannedWorker, plan};

    /// Core, unit and clusters of each worker.
    fn shown(workers: &[PlannedWorker]) -> Vec<String> {
        let of = |worker: &PlannedWorker| {
            let (part, core) = (&worker.part, worker.core.map_or("any".to_owned(), |core| core.to_string()));
            format!("{core}@{}: {} {:?}", worker.node, part.unit, part.clusters)
        };
        workers.iter().map(of).collect()
    }

    #[test]
    fn units_have_as_many_cores_as_clusters_and_one_node() {
        let two_nodes = |core: usize| u32::from(core >= 4);
        let planned = |cores: &[usize], units| shown(&plan(cores, two_nodes, 4, units).expect("possible"));
        assert_eq!(planned(&[], None), ["any@0: 0 0..4"]);
        assert_eq!(planned(&[2, 3], None), ["2@0: 0 0..2", "3@0: 0 2..4"]);
        assert_eq!(planned(&[5, 0, 6], None), ["5@1: 0 0..2", "6@1: 0 2..4", "0@0: 1 0..4"]);
        assert_eq!(planned(&[0, 1, 2], Some(2)), ["0@0: 0 0..4", "1@0: 1 0..2", "2@0: 1 2..4"]);
        assert_eq!(planned(&[0, 1], Some(2)), ["0@0: 0 0..4", "1@0: 1 0..4"]);
        let five = plan(&[0, 1, 2, 3, 8], |_| 0, 4, None).expect("possible");
        assert_eq!(five.iter().map(|worker| worker.part.unit).collect::<Vec<_>>(), [0, 0, 1, 1, 1]);
    }

    #[test]
    fn impossible_numbers_are_refused_with_what_is_possible() {
        let cores: Vec<usize> = (0..8).collect();
        for units in [0, 1, 9] {
            let refused = plan(&cores, |_| 0, 4, Some(units));
            assert_eq!(refused, Err(BadUnits { units, least: 2, most: 8, clusters: 4 }));
        }
    }

    proptest! {
        #[test]
        fn every_core_has_one_worker_and_every_cluster_too(
            cores in prop::collection::hash_set(0..200_usize, 1..100), nodes in 1..5_usize, clusters in 1..5_u32, more in 0..3_u32,
        ) {
            let cores: Vec<usize> = cores.into_iter().collect();
            let node = |core: usize| (core % nodes) as u32;
            let least = plan(&cores, node, clusters, None).expect("possible");
            let units = least.last().expect("one").part.unit + 1;
            let wanted = (units + more).min(cores.len() as u32);
            let workers = plan(&cores, node, clusters, Some(wanted)).expect("possible");
            let mut seen: Vec<_> = workers.iter().filter_map(|worker| worker.core).collect();
            prop_assert_eq!(seen.len(), cores.len());
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), cores.len());
            prop_assert_eq!(workers.last().expect("one").part.unit + 1, wanted);
            for unit in 0..wanted {
                let of: Vec<_> = workers.iter().filter(|worker| worker.part.unit == unit).collect();
                prop_assert!(of.iter().all(|worker| worker.node == of[0].node && !worker.part.clusters.is_empty()));
                prop_assert!(of.iter().all(|worker| worker.node == node(worker.core.expect("a core"))));
                let mut next = 0;
                for worker in of {
                    prop_assert_eq!(worker.part.clusters.start, next);
                    next = worker.part.clusters.end;
                }
                prop_assert_eq!(next, clusters);
            }
            prop_assert!(workers.iter().enumerate().all(|(index, worker)| worker.part.worker as usize == index));
        }
    }
}
