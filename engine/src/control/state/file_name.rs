//! Names of entries: the context's rank, which orders contexts by priority, and its id. A context that replaces another one has its rank: if
//! a crash leaves the entries of both, the one with the higher id is valid.

/// Greatest id of an entry, so that ids that follow have room.
const MAX_ID: u32 = u32::MAX >> 1;

/// The name of a context's entry.
pub fn of(rank: u32, id: u32) -> String {
    format!("{rank:010}-{id:010}")
}

/// Rank and id of an entry.
pub fn parse(file: &str) -> Option<(u32, u32)> {
    let (rank, id) = file.split_once('-')?;
    let (rank, id) = (rank.parse().ok()?, id.parse().ok()?);
    (id <= MAX_ID && rank <= id && of(rank, id) == file).then_some((rank, id))
}

#[cfg(test)]
mod tests {
    use super::{MAX_ID, of, parse};

    #[test]
    fn only_names_of_entries_are_entries() {
        for (rank, id) in [(1, 1), (3, 70), (MAX_ID, MAX_ID), (0, 5)] {
            assert_eq!(parse(&of(rank, id)), Some((rank, id)));
        }
        let wrong = ["", "-", "1-1", "0000000001-0000000001.broken", "+000000001-0000000001", "0000000001-00000000001"];
        assert!(wrong.into_iter().all(|file| parse(file).is_none()));
        assert!([(2, 1), (1, MAX_ID + 1)].into_iter().all(|(rank, id)| parse(&of(rank, id)).is_none()));
    }
}
