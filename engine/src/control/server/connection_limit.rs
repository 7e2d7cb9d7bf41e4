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
