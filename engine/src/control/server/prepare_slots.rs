//! Who prepares a context: it takes as much memory as a context may have, whether or not there is room for one more. So few do at a time,
//! and of each user one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Contexts that are prepared at the same time.
const TOGETHER: usize = 4;

/// Users whose turn it is.
#[derive(Default)]
pub struct Turns {
    users: Mutex<Vec<u32>>,
    over: Condvar,
}

impl Turns {
    /// Waits for a user's turn.
    pub fn take(&self, user: u32) -> Turn<'_> {
        let waits = |users: &mut Vec<u32>| users.len() >= TOGETHER || users.contains(&user);
        let users = self.over.wait_while(self.lock(), waits);
        users.unwrap_or_else(PoisonError::into_inner).push(user);
        Turn { turns: self, user }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // Every step leaves it whole.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A user's turn, over when dropped.
pub struct Turn<'t> {
    turns: &'t Turns,
    user: u32,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut users = self.turns.lock();
        if let Some(index) = users.iter().position(|user| *user == self.user) {
            users.swap_remove(index);
        }
        self.turns.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    use super::{TOGETHER, Turns};

    #[test]
    fn each_user_has_one_at_a_time_and_all_have_few() {
        let (turns, all) = (Turns::default(), AtomicU32::new(0));
        let each: [AtomicU32; 7] = Default::default();
        thread::scope(|scope| {
            for round in 0..70 {
                let (turns, all, own) = (&turns, &all, &each[round % 7]);
                scope.spawn(move || {
                    let _turn = turns.take((round % 7) as u32);
                    assert_eq!(own.fetch_add(1, SeqCst), 0);
                    assert!(all.fetch_add(1, SeqCst) < TOGETHER as u32);
                    thread::yield_now();
                    all.fetch_sub(1, SeqCst);
                    own.fetch_sub(1, SeqCst);
                });
            }
        });
        assert!(turns.lock().is_empty());
    }
}
