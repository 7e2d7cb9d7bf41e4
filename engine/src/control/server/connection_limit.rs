//! Open connections by user, within limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections of all users but root together; each costs a thread.
const MAX_CONNECTIONS: usize = 256;

/// Open connections by user.
#[derive(Default)]
pub struct Connections(Mutex<HashMap<u32, usize>>);

impl Connections {
    /// Takes a place for a user; `None` when its places, or all but root's, are taken.
    pub fn open(all: &Arc<Self>, uid: u32, per_user: usize) -> Option<Place> {
        let mut open = all.lock();
        let others: usize = open.iter().filter(|(user, _)| **user != 0).map(|(_, count)| count).sum();
        let count = open.get(&uid).copied().unwrap_or(0);
        let room = count < per_user && (uid == 0 || others < MAX_CONNECTIONS);
        room.then(|| {
            open.insert(uid, count + 1);
            Place { all: all.clone(), uid }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        // The counts are consistent at every moment a thread could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A user's place among the connections, free again when dropped.
pub struct Place {
    all: Arc<Connections>,
    uid: u32,
}

impl Drop for Place {
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
