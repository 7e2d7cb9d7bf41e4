//! The units of each context, and the choice of units for a new one.

use std::collections::BTreeMap;

use crate::cores::units::UnitPart;
use crate::install::{InstallError, Prepared, UnitRange, WorkerRange};

/// The units of contexts, by id.
#[derive(Debug, Default)]
pub(super) struct Placements {
    /// The workers of each unit.
    units: Vec<WorkerRange>,
    contexts: BTreeMap<u32, UnitRange>,
}

impl Placements {
    /// No contexts, on workers with these parts of units, in their order.
    pub(super) fn new<'p>(workers: impl Iterator<Item = &'p UnitPart>) -> Self {
        let mut units: Vec<WorkerRange> = Vec::new();
        for &UnitPart { worker, unit, .. } in workers {
            match units.get_mut(unit as usize) {
                Some(range) => range.count += 1,
                None => units.push(WorkerRange { first: worker, count: 1 }),
            }
        }
        Self { units, contexts: BTreeMap::new() }
    }

    /// Places a context: in the units of the one that it replaces, in the requested ones, or in those with fewest contexts. Returns its units
    /// and workers.
    ///
    /// # Errors
    /// [`InstallError::NoUnit`], [`InstallError::OtherUnits`].
    pub(super) fn place(&mut self, id: u32, prepared: &Prepared) -> Result<(UnitRange, WorkerRange), InstallError> {
        let count = u32::try_from(prepared.units.len()).unwrap_or(u32::MAX);
        let replaced = prepared.replaces().and_then(|old| Some((old, *self.contexts.get(&old)?)));
        let wanted = prepared.install.unit;
        let units = match replaced {
            Some((old, UnitRange { first, count: of_old })) => {
                if count != of_old || wanted.is_some_and(|wanted| wanted != first) {
                    return Err(InstallError::OtherUnits { old, first, last: first + of_old - 1 });
                }
                UnitRange { first, count }
            }
            None => UnitRange { first: wanted.unwrap_or_else(|| self.least_loaded(count)), count },
        };
        let UnitRange { first, count } = units;
        let end = first.checked_add(count).map_or(usize::MAX, |end| end as usize);
        let of = self.units.get(first as usize..end).filter(|of| !of.is_empty());
        let all = u32::try_from(self.units.len()).unwrap_or(u32::MAX);
        let of = of.ok_or(InstallError::NoUnit { first, count, units: all })?;
        let workers = WorkerRange { first: of[0].first, count: of.iter().map(|of| of.count).sum() };
        self.contexts.insert(id, units);
        Ok((units, workers))
    }

    /// The first of `count` neighbouring units that have fewest contexts.
    fn least_loaded(&self, count: u32) -> u32 {
        let mut loads = vec![0_u32; self.units.len()];
        for units in self.contexts.values() {
            let of = loads.iter_mut().skip(units.first as usize).take(units.count as usize);
            of.for_each(|load| *load += 1);
        }
        let sums = loads.windows(count.max(1) as usize).map(|of| of.iter().sum::<u32>());
        (0..).zip(sums).min_by_key(|&(first, sum)| (sum, first)).map_or(0, |(first, _)| first)
    }

    /// Forgets a context.
    pub(super) fn remove(&mut self, id: u32) {
        self.contexts.remove(&id);
    }

    /// The first worker that runs a context. 0 if the context is unknown.
    pub(super) fn first_worker(&self, id: u32) -> u16 {
        let of = self.contexts.get(&id).and_then(|units| self.units.get(units.first as usize));
        of.map_or(0, |workers| workers.first)
    }
}
