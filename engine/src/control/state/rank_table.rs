//! The rank of each context among all.

use std::collections::HashMap;

/// RankTable of contexts: a context that replaces another one has its rank, any other one the lowest, which is its id. Ids ascend.
#[derive(Debug, Default)]
pub struct RankTable(HashMap<u32, u32>);

impl RankTable {
    /// Adds a context, and removes the one that it replaces. Returns its rank.
    pub fn add(&mut self, id: u32, replaces: Option<u32>) -> u32 {
        let rank = replaces.and_then(|old| self.0.remove(&old)).unwrap_or(id);
        self.0.insert(id, rank);
        rank
    }

    /// Adds a context of an earlier run.
    pub fn restore(&mut self, id: u32, rank: u32) {
        self.0.insert(id, rank);
    }

    /// Number of contexts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes a context.
    pub fn remove(&mut self, id: u32) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::RankTable;

    #[test]
    fn a_rank_passes_on_once_from_each_context_to_the_one_that_replaces_it() {
        let mut ranks = RankTable::default();
        ranks.restore(7, 3);
        assert_eq!([ranks.add(8, None), ranks.add(9, Some(7)), ranks.add(10, Some(9))], [8, 3, 3]);
        // It was replaced before, in the same transaction.
        assert_eq!(ranks.add(11, Some(7)), 11);
        ranks.remove(10);
        assert_eq!((ranks.add(12, Some(10)), ranks.0.len()), (12, 3));
    }
}
