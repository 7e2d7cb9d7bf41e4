//! Static shares: the part of a whole that each context has by the weights of users and of contexts.
//!
//! The packet buffer, packet channels and the [stall credit](crate::sched::stall_credit) are divided by these parts. They count
//! all installed contexts, whether or not these have packets.

/// A context's part of a whole: its user's share, times the context's share in the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    own: u64,
    all: u64,
}

impl Part {
    /// The part `own` of `all`.
    #[must_use]
    pub const fn new(own: u64, all: u64) -> Self {
        Self { own, all }
    }

    /// Whether there are no others.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.own == self.all
    }

    /// The context's part of `amount`, rounded down.
    #[must_use]
    pub fn of(self, amount: u64) -> u64 {
        amount.saturating_mul(self.own) / self.all.max(1)
    }

    /// `amount`, times the context's part divided by the part of all others.
    #[must_use]
    pub fn relative_to_others(self, amount: u64) -> u64 {
        amount.saturating_mul(self.own) / self.all.saturating_sub(self.own).max(1)
    }
}

/// The weights that a context's part depends on.
#[derive(Clone, Copy, Debug)]
pub struct ContextWeight {
    /// The user.
    pub uid: u32,
    /// The weight of the user's share.
    pub user_weight: u32,
    /// The weight of the context's share in the user.
    pub weight: u32,
}

/// The sums of weights, by user.
#[derive(Debug, Default)]
pub(crate) struct WeightSums {
    /// Each user, and the sum of the weights of the user's contexts.
    users: Vec<(u32, u64)>,
    /// The sum of the users' weights.
    all: u64,
}

impl WeightSums {
    /// Adds a context.
    fn add(&mut self, context: ContextWeight) {
        let weight = u64::from(context.weight);
        match self.users.iter_mut().find(|(uid, _)| *uid == context.uid) {
            Some((_, sum)) => *sum += weight,
            None => {
                self.users.push((context.uid, weight));
                self.all += u64::from(context.user_weight);
            }
        }
    }

    /// The part of a context. One that is not among those added has at most the part of its user.
    pub(crate) fn part(&self, context: ContextWeight) -> Part {
        let (user_weight, weight) = (u64::from(context.user_weight), u64::from(context.weight));
        let of_user = self.users.iter().find(|(uid, _)| *uid == context.uid).map(|&(_, sum)| sum);
        let all = self.all + if of_user.is_none() { user_weight } else { 0 };
        Part::new(user_weight * weight, all * of_user.unwrap_or(0).max(weight))
    }
}

impl FromIterator<ContextWeight> for WeightSums {
    fn from_iter<I: IntoIterator<Item = ContextWeight>>(contexts: I) -> Self {
        let mut sums = Self::default();
        contexts.into_iter().for_each(|context| sums.add(context));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::{ContextWeight, WeightSums};

    /// The parts of 6000 that contexts with this user, weight of the user and weight have.
    fn parts(contexts: &[(u32, u32, u32)]) -> Vec<u64> {
        let weight = |&(uid, user_weight, weight)| ContextWeight { uid, user_weight, weight };
        let sums: WeightSums = contexts.iter().map(weight).collect();
        contexts.iter().map(|context| sums.part(weight(context)).of(6000)).collect()
    }

    #[test]
    fn contexts_divide_the_share_of_their_user() {
        assert_eq!(parts(&[(0, 1, 3), (0, 1, 1)]), [4500, 1500], "of one user");
        assert_eq!(parts(&[(0, 1, 1), (7, 1, 1000)]), [3000, 3000], "whatever their weights");
        assert_eq!(parts(&[(0, 2, 1), (7, 1, 3), (7, 1, 1)]), [4000, 1500, 500]);
        let crowd = [vec![(0, 1, 1)], vec![(7, 1, 1); 60]].concat();
        assert_eq!(parts(&crowd), [vec![3000], vec![50; 60]].concat(), "whatever their number");
    }

    #[test]
    fn stalls_are_repaid_at_the_rate_of_the_part() {
        let weights = |(uid, user_weight, weight)| ContextWeight { uid, user_weight, weight };
        let contexts = [(0, 1, 1), (7, 1, 1000), (7, 1, 1)].map(weights);
        let sums: WeightSums = contexts.into_iter().collect();
        let repaid = contexts.map(|context| sums.part(context).relative_to_others(1_000_000));
        // Of 2002: 1001, 1000 and 1.
        assert_eq!(repaid, [1_000_000, 1_000_000 * 1000 / 1002, 1_000_000 / 2001]);
        assert_eq!([weights((0, 3, 5))].into_iter().collect::<WeightSums>().part(weights((0, 3, 5))).of(64), 64);
    }

    #[test]
    fn a_context_that_drains_has_no_more_than_its_user() {
        let weight = |uid, weight| ContextWeight { uid, user_weight: 1, weight };
        let sums: WeightSums = [weight(0, 1), weight(7, 1)].into_iter().collect();
        assert_eq!(sums.part(weight(7, 1000)).of(6000), 3000);
        assert_eq!(sums.part(weight(9, 1000)).of(6000), 2000);
    }
}
