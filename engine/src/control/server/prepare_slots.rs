//! Limits the number of contexts that are prepared at the same time: a few in all, and one per user. Preparing takes as much memory as a
//! context may have, even if there is no room for the context itself.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum number of contexts that are prepared at the same time.
const MAX_PREPARING: usize = 4;

/// Users that are preparing a context.
#[derive(Default)]
pub struct PrepareSlots {
    users: Mutex<Vec<u32>>,
    released: Condvar,
}

impl PrepareSlots {
    /// Waits until a user may prepare a context.
    pub fn take(&self, user: u32) -> PrepareSlot<'_> {
        let waits = |users: &mut Vec<u32>| users.len() >= MAX_PREPARING || users.contains(&user);
        let users = self.released.wait_while(self.lock(), waits);
        users.unwrap_or_else(PoisonError::into_inner).push(user);
        PrepareSlot { slots: self, user }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // The list is consistent after every step, even if a thread panics.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A user's slot, released when dropped.
pub struct PrepareSlot<'s> {
    slots: &'s PrepareSlots,
    user: u32,
}

impl Drop for PrepareSlot<'_> {
    fn drop(&mut self) {
        let mut users = self.slots.lock();
        if let Some(index) = users.iter().position(|user| *user == self.user) {
            users.swap_remove(index);
        }
        self.slots.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    use super::{MAX_PREPARING, PrepareSlots};

    #[test]
    fn each_user_has_one_at_a_time_and_all_have_few() {
        let (slots, all) = (PrepareSlots::default(), AtomicU32::new(0));
        let each: [AtomicU32; 7] = Default::default();
        thread::scope(|scope| {
            for round in 0..70 {
                let (slots, all, own) = (&slots, &all, &each[round % 7]);
                scope.spawn(move || {
                    let _slot = slots.take((round % 7) as u32);
                    assert_eq!(own.fetch_add(1, SeqCst), 0);
                    assert!(all.fetch_add(1, SeqCst) < MAX_PREPARING as u32);
                    thread::yield_now();
                    all.fetch_sub(1, SeqCst);
                    own.fetch_sub(1, SeqCst);
                });
            }
        });
        assert!(slots.lock().is_empty());
    }
}
