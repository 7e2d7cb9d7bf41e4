//! Limits the number of open connections, by user and in all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of connections of all users but root together. Each costs a thread.
const MAX_CONNECTIONS: usize = 256;

/// Open connections by user.
#[derive(Default)]
pub struct ConnectionLimit(Mutex<HashMap<u32, usize>>);

impl ConnectionLimit {
    /// Takes a slot for a user. `None` when the user, or all users but root together, have reached the limit.
    pub fn open(all: &Arc<Self>, uid: u32, per_user: usize) -> Option<ConnectionSlot> {
        let mut open = all.lock();
        let others: usize = open.iter().filter(|(user, _)| **user != 0).map(|(_, count)| count).sum();
        let count = open.get(&uid).copied().unwrap_or(0);
        let room = count < per_user && (uid == 0 || others < MAX_CONNECTIONS);
        room.then(|| {
            open.insert(uid, count + 1);
            ConnectionSlot { all: all.clone(), uid }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        // The counts are consistent wherever a thread could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection of a user. Dropping it frees the slot.
pub struct ConnectionSlot {
    all: Arc<ConnectionLimit>,
    uid: u32,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.all.lock();
        if let Some(count) = open.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ConnectionLimit, MAX_CONNECTIONS};

    #[test]
    fn users_are_limited_each_and_together_and_root_only_by_itself() {
        let all = Arc::new(ConnectionLimit::default());
        let open = |uid: u32, per_user: usize| ConnectionLimit::open(&all, uid, per_user);
        let mut slots: Vec<_> = (0..3).map(|_| open(7, 3).expect("below the limit")).collect();
        assert!(open(7, 3).is_none());
        slots.pop();
        assert!(open(7, 3).is_some(), "a slot that is dropped is free");
        slots.extend((2..MAX_CONNECTIONS).map(|_| open(8, MAX_CONNECTIONS).expect("there is room")));
        assert!([7, 8, 9].iter().all(|&uid| open(uid, MAX_CONNECTIONS).is_none()), "all users but root together");
        let root: Vec<_> = (0..3).map(|_| open(0, 3).expect("root is not counted with others")).collect();
        assert!(open(0, 3).is_none() && root.len() == 3);
        slots.pop();
        assert!(open(9, 1).is_some(), "root's connections take no room from others");
    }
}
