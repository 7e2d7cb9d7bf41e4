//! Packets that were sent and not acknowledged: so many at a time.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Packets by their offsets. Senders enter them, who reads acknowledgements lets them go.
pub struct Window {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BTreeSet<u32>,
    /// When the first of them was entered, or one left last.
    since: Option<Instant>,
    given_up: bool,
}

impl Window {
    /// For `size` packets, at least one.
    pub fn new(size: usize) -> Self {
        Self { size, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for room and notes a packet, which is about to be sent. `false`: do not, the message was given up. Does not wait for
    /// ever as long as somebody reads acknowledgements or gives up.
    pub fn enter(&self, offset: u32) -> bool {
        let full = |state: &mut State| state.waiting.len() >= self.size && !state.given_up;
        let waited = self.changed.wait_while(self.lock(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.waiting.is_empty() {
            state.since = Some(Instant::now());
        }
        state.waiting.insert(offset);
        !state.given_up
    }

    /// Lets a packet go; `false`: it did not wait.
    pub fn leave(&self, offset: u32) -> bool {
        let mut state = self.lock();
        let waited = state.waiting.remove(&offset);
        if waited {
            state.since = Some(Instant::now());
        }
        drop(state);
        self.changed.notify_one();
        waited
    }

    /// How long packets have waited without one leaving; nothing when none waits, since a sender may take its time.
    pub fn silence(&self) -> Duration {
        let state = self.lock();
        state.since.filter(|_| !state.waiting.is_empty()).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Lets nobody enter any more. Returns how many packets wait, and the first of them.
    pub fn give_up(&self) -> (usize, u32) {
        let mut state = self.lock();
        state.given_up = true;
        self.changed.notify_all();
        (state.waiting.len(), state.waiting.first().copied().unwrap_or(0))
    }

    pub fn is_given_up(&self) -> bool {
        self.lock().given_up
    }

    /// It is whole at any moment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
