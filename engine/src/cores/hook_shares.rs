//! Shares of users in the XDP hook: how much each program may be charged on a processor until the next time.
//!
//! The hook has no scheduler: a packet's handler runs when the packet arrives. What a program is charged beyond its share, by loop
//! iterations and packets, goes to user space, where the scheduler divides the time. A user who has a processor to himself has no limit.

use std::collections::{BTreeMap, BTreeSet};

/// What a program was charged on a processor in the last period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The program's user.
    pub uid: u32,
    /// The amount.
    pub charged: u64,
}

/// Amounts that the programs may be charged in the next period, in the order of `charges`; `None`: no limit. `others`: users who were
/// active in user space in the last period. `weight`: that of a user's share. `capacity`: the amount that a processor can do in a period.
///
/// Users who were active divide the capacity by their weights, and programs of a user that were active divide the user's part evenly. Those
/// that were not active may use up their user's part.
pub fn allowances(
    charges: &[Charge],
    others: &BTreeSet<u32>,
    weight: impl Fn(u32) -> u32,
    capacity: u64,
) -> Vec<Option<u64>> {
    let mut programs = BTreeMap::<u32, u64>::new();
    for charge in charges.iter().filter(|charge| charge.charged > 0) {
        *programs.entry(charge.uid).or_default() += 1;
    }
    let active: BTreeSet<u32> = programs.keys().chain(others).copied().collect();
    let weight = |uid: u32| u64::from(weight(uid).max(1));
    let all: u64 = active.iter().map(|&uid| weight(uid)).sum();
    let of = |charge: &Charge| {
        let is_alone = active.iter().all(|&uid| uid == charge.uid);
        // Of a user who was not active, too.
        let all = if active.contains(&charge.uid) { all } else { all + weight(charge.uid) };
        let count = if charge.charged > 0 { programs.get(&charge.uid).copied().unwrap_or(1) } else { 1 };
        (!is_alone).then(|| capacity.saturating_mul(weight(charge.uid)) / all / count)
    };
    charges.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{Charge, allowances};

    fn of(charges: &[(u32, u64)], others: &[u32]) -> Vec<Option<u64>> {
        let charges: Vec<_> = charges.iter().map(|&(uid, charged)| Charge { uid, charged }).collect();
        allowances(&charges, &others.iter().copied().collect(), |uid| if uid == 9 { 3 } else { 1 }, 1200)
    }

    #[test]
    fn a_user_who_is_alone_has_no_limit() {
        assert_eq!(of(&[(1, 500), (1, 0)], &[]), [None, None]);
        assert_eq!(of(&[(1, 500)], &[1]), [None], "the same user in user space");
        assert_eq!(of(&[(1, 0)], &[]), [None]);
        assert_eq!(of(&[], &[1, 2]), []);
    }

    #[test]
    fn active_users_divide_the_capacity_by_weight() {
        assert_eq!(of(&[(1, 500)], &[2]), [Some(600)]);
        assert_eq!(of(&[(1, 500), (2, 1)], &[]), [Some(600), Some(600)]);
        assert_eq!(of(&[(1, 500), (9, 1)], &[]), [Some(300), Some(900)]);
        assert_eq!(of(&[(1, 500), (1, 5), (2, 7)], &[3]), [Some(200), Some(200), Some(400)]);
        assert_eq!(of(&[(1, 0), (2, 7)], &[]), [Some(600), None], "one who begins has a share at once");
    }

    proptest! {
        #[test]
        fn active_programs_get_no_more_than_there_is(
            charges in proptest::collection::vec((0..5_u32, 0..3_u64), 0..12),
            others in proptest::collection::btree_set(0..6_u32, 0..6),
        ) {
            let charges: Vec<_> = charges.into_iter().map(|(uid, charged)| Charge { uid, charged }).collect();
            let given = allowances(&charges, &others, |uid| uid + 1, 1_000_000);
            let users: BTreeSet<u32> =
                charges.iter().filter(|charge| charge.charged > 0).map(|charge| charge.uid).chain(others).collect();
            let active = charges.iter().zip(&given).filter(|(charge, _)| charge.charged > 0);
            let sum: u64 = active.filter_map(|(_, given)| *given).sum();
            prop_assert!(sum <= 1_000_000);
            for (charge, given) in charges.iter().zip(&given) {
                prop_assert_eq!(given.is_none(), users.iter().all(|&uid| uid == charge.uid));
            }
        }
    }
}
