//! Values shared by equal keys: one user makes a value, others with the same key share it, and it lives as long as it
//! is in use.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Values in use, by their keys. Threads may share the cache.
#[derive(Debug)]
pub struct WeakCache<K, V> {
    values: Mutex<HashMap<K, Weak<V>>>,
}

impl<K, V> Default for WeakCache<K, V> {
    fn default() -> Self {
        Self { values: Mutex::default() }
    }
}

impl<K: Eq + Hash, V> WeakCache<K, V> {
    /// Returns the value of `key`: the one in use, or a new one. No lock is held while it is made.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        if let Some(cached) = self.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(cached);
        }
        // Another thread may make the value of this key meanwhile. All users get the one that is ready first.
        let new = Arc::new(make()?);
        let mut values = self.lock();
        values.retain(|_, value| value.strong_count() > 0);
        let entry = values.entry(key).or_default();
        if let Some(first) = entry.upgrade() {
            return Ok(first);
        }
        *entry = Arc::downgrade(&new);
        Ok(new)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<K, Weak<V>>> {
        // Every step leaves the map consistent.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
