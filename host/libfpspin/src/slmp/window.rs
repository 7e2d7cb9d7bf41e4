//! A bounded window of unacknowledged packets.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Unacknowledged packets by offset. Senders enter them; the reader of acknowledgements removes them.
pub struct Window {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BTreeSet<u32>,
    /// Time when the first packet was entered, or when the last one left.
    since: Option<Instant>,
    given_up: bool,
}

impl Window {
    /// Makes a window for `size` packets; `size` is at least one.
    pub fn new(size: usize) -> Self {
        Self { size, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for room and enters a packet that is about to be sent. `false`: the message was given up and the packet
    /// must not be sent. The wait ends as long as another thread reads acknowledgements or gives up.
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

    /// Removes a packet; `false` if it was not in the window.
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

    /// Returns how long packets have waited since one was last removed; zero when the window is empty, since a sender
    /// may take its time.
    pub fn silence(&self) -> Duration {
        let state = self.lock();
        state.since.filter(|_| !state.waiting.is_empty()).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Refuses further packets. Returns the number of waiting packets and the lowest offset among them.
    pub fn give_up(&self) -> (usize, u32) {
        let mut state = self.lock();
        state.given_up = true;
        self.changed.notify_all();
        (state.waiting.len(), state.waiting.first().copied().unwrap_or(0))
    }

    pub fn is_given_up(&self) -> bool {
        self.lock().given_up
    }

    /// Locks the state and ignores poisoning: it is consistent at any time.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
