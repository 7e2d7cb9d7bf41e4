//! Limits the number of contexts at the same stage of their installation, in all and per user. Users who wait take turns.
//!
//! * Preparing takes as much memory as a context may have, even if there is no room for the context itself.
//! * Contexts that wait for the packet threads are attached together, between two polls. So a user may keep packets waiting for as long as it
//!   takes to attach a few. The memory of these contexts is on their user's [bill](crate::install::ledger).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::fair_queue::FairQueue;

/// Users that are at a stage, and those that wait.
pub struct PrepareSlots {
    state: Mutex<State>,
    granted: Condvar,
    limits: Limits,
}

/// Maximum numbers at the same time.
#[derive(Clone, Copy)]
struct Limits {
    all: usize,
    of_user: usize,
}

#[derive(Default)]
struct State {
    /// Users that hold a slot.
    users: Vec<u32>,
    /// Numbers of the waiting threads.
    waiting: FairQueue<u64>,
    /// Numbers of the threads whose turn it is, and that have not noticed yet. Their users hold a slot.
    called: Vec<u64>,
    /// The number of the latest thread.
    last: u64,
}

impl State {
    /// Gives free slots to users in the order of their turns.
    fn grant(&mut self, Limits { all, of_user }: Limits) {
        while self.users.len() < all {
            let has_less = |user: u32| self.users.iter().filter(|&&other| other == user).count() < of_user;
            let Some((user, number)) = self.waiting.pop_of(has_less) else { return };
            self.users.push(user);
            self.called.push(number);
        }
    }

    /// Whether it is the turn of a thread. Tells each thread once.
    fn is_called(&mut self, number: u64) -> bool {
        let index = self.called.iter().position(|called| *called == number);
        index.map(|index| self.called.swap_remove(index)).is_some()
    }
}

impl PrepareSlots {
    /// Slots for contexts and rules that are prepared.
    pub fn for_preparing() -> Self {
        Self::new(Limits { all: 4, of_user: 1 })
    }

    /// Slots for contexts that wait for the packet threads.
    pub fn for_attaching() -> Self {
        Self::new(Limits { all: 64, of_user: 8 })
    }

    fn new(limits: Limits) -> Self {
        Self { state: Mutex::default(), granted: Condvar::default(), limits }
    }

    /// Waits for a slot.
    pub fn take(&self, user: u32) -> PrepareSlot<'_> {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        state.waiting.push(user, number);
        state.grant(self.limits);
        let state = self.granted.wait_while(state, |state| !state.is_called(number));
        drop(state.unwrap_or_else(PoisonError::into_inner));
        PrepareSlot { slots: self, user }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every step, even if a thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A user's slot, released when dropped.
pub struct PrepareSlot<'s> {
    slots: &'s PrepareSlots,
    user: u32,
}

impl Drop for PrepareSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        if let Some(index) = state.users.iter().position(|user| *user == self.user) {
            state.users.swap_remove(index);
        }
        state.grant(self.slots.limits);
        self.slots.granted.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    use super::{Limits, PrepareSlots};

    const ALL: usize = 4;

    fn users_have_at_most(of_user: usize) {
        let (slots, all) = (PrepareSlots::new(Limits { all: ALL, of_user }), AtomicU32::new(0));
        let each: [AtomicU32; 7] = Default::default();
        thread::scope(|scope| {
            for round in 0..70 {
                let (slots, all, own) = (&slots, &all, &each[round % 7]);
                scope.spawn(move || {
                    let _slot = slots.take((round % 7) as u32);
                    assert!(own.fetch_add(1, SeqCst) < of_user as u32);
                    assert!(all.fetch_add(1, SeqCst) < ALL as u32);
                    thread::yield_now();
                    all.fetch_sub(1, SeqCst);
                    own.fetch_sub(1, SeqCst);
                });
            }
        });
        let state = slots.lock();
        assert!(state.users.is_empty() && state.waiting.is_empty() && state.called.is_empty());
    }

    #[test]
    fn users_and_all_together_have_few_at_a_time() {
        (1..4).for_each(users_have_at_most);
    }

    /// All slots are held while requests of some users queue up. From then on one slot is free, so that the order is seen.
    #[test]
    fn users_take_turns() {
        let (slots, order) = (PrepareSlots::for_preparing(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            let mut held: Vec<_> = (100..).take(ALL).map(|user| slots.take(user)).collect();
            let mut queued = 0;
            for user in [1, 1, 1, 1, 1, 2, 2, 2, 3, 0] {
                let (slots, order) = (&slots, &order);
                scope.spawn(move || {
                    let _slot = slots.take(user);
                    order.lock().expect("no panic").push(user);
                });
                queued += 1;
                // A thread that has its number waits.
                while slots.lock().last < ALL as u64 + queued {
                    thread::yield_now();
                }
            }
            held.pop();
            while order.lock().expect("no panic").len() < 10 {
                thread::yield_now();
            }
        });
        assert_eq!(*order.lock().expect("no panic"), [1, 2, 3, 0, 1, 2, 1, 2, 1, 1]);
    }
}
