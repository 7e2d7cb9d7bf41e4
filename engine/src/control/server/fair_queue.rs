//! A queue in which users take turns. An entry waits for at most one entry of each other user, besides earlier ones of its own user.

use std::collections::VecDeque;

/// Entries by user, in the order of the users' turns.
pub struct FairQueue<T> {
    /// Users with entries. Their number is small: each of them has a connection.
    turns: VecDeque<(u32, VecDeque<T>)>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { turns: VecDeque::new() }
    }
}

impl<T> FairQueue<T> {
    /// Adds an entry of a user behind that user's earlier ones.
    pub fn push(&mut self, user: u32, entry: T) {
        match self.turns.iter_mut().find(|(other, _)| *other == user) {
            Some((_, entries)) => entries.push_back(entry),
            None => self.turns.push_back((user, VecDeque::from([entry]))),
        }
    }

    /// Takes the first entry of the user whose turn it is. That user's next turn comes after those of all users that wait.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true).map(|(_, entry)| entry)
    }

    /// Takes the first entry of the first user who `may` have a turn. Users who may not keep their places.
    pub fn pop_of(&mut self, may: impl Fn(u32) -> bool) -> Option<(u32, T)> {
        let turn = self.turns.iter().position(|(user, _)| may(*user))?;
        let (user, mut entries) = self.turns.remove(turn)?;
        let entry = entries.pop_front()?;
        if !entries.is_empty() {
            self.turns.push_back((user, entries));
        }
        Some((user, entry))
    }

    /// Whether no entry waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    use proptest::prelude::{ProptestConfig, any, prop, proptest};

    use super::FairQueue;

    const USERS: u32 = 5;

    /// A queue, and what its users know of it.
    #[derive(Default)]
    struct Watched {
        queue: FairQueue<u32>,
        pushed: u32,
        /// Entries by user that were not served yet.
        waiting: BTreeMap<u32, VecDeque<u32>>,
        /// Users served since a user's first entry is first, by that user.
        served: BTreeMap<u32, BTreeSet<u32>>,
    }

    impl Watched {
        fn push(&mut self, user: u32) {
            self.pushed += 1;
            self.queue.push(user, self.pushed);
            self.waiting.entry(user).or_default().push_back(self.pushed);
            self.served.entry(user).or_default();
        }

        /// Serves one entry of the users that `may`, and checks that nobody waits for a user twice.
        fn pop(&mut self, may: impl Fn(u32) -> bool) {
            let Some((user, entry)) = self.queue.pop_of(&may) else {
                assert!(self.waiting.keys().all(|&user| !may(user)), "an entry is left behind");
                return;
            };
            let own = self.waiting.get_mut(&user).expect("it waited");
            assert_eq!(own.pop_front(), Some(entry), "a user's entries keep their order");
            let is_last = own.is_empty();
            if is_last {
                self.waiting.remove(&user);
            }
            self.served.remove(&user);
            for (&other, served) in &mut self.served {
                assert!(served.insert(user) || !may(other), "user {other} waits for a second entry of user {user}");
            }
            if !is_last {
                self.served.insert(user, BTreeSet::new());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nobody_waits_for_two_entries_of_another_user(
            steps in prop::collection::vec((any::<bool>(), 0..USERS), 0..200),
        ) {
            let mut watched = Watched::default();
            for (pushes, user) in steps {
                if pushes {
                    watched.push(user);
                } else {
                    watched.pop(|_| true);
                }
            }
            while !watched.queue.is_empty() {
                watched.pop(|_| true);
            }
            assert!(watched.waiting.is_empty(), "every entry is served");
        }

        /// Users who may not have a turn for a while lose nothing by that.
        #[test]
        fn who_is_passed_over_keeps_its_turn(
            steps in prop::collection::vec((any::<bool>(), 0..USERS, any::<u32>()), 0..200),
        ) {
            let mut watched = Watched::default();
            for (pushes, user, busy) in steps {
                if pushes {
                    watched.push(user);
                } else {
                    watched.pop(|user| busy >> user & 1 == 0);
                }
            }
        }
    }

    #[test]
    fn one_users_many_entries_delay_anothers_by_one() {
        let mut queue = FairQueue::default();
        (0..100).for_each(|entry| queue.push(7, entry));
        queue.push(8, 1000);
        queue.push(0, 2000);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order[..4], [0, 1000, 2000, 1]);
        assert_eq!(order.len(), 102);
    }
}
