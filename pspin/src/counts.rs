//! Counter values: plain words, private to one thread.

use spin_abi::counters::Counter;

/// One value per [`Counter`].
#[derive(Clone, Debug)]
pub struct Counts([u64; Counter::COUNT]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Counter::COUNT])
    }
}

impl Counts {
    /// Adds `n` to a counter.
    #[inline]
    pub fn add(&mut self, counter: Counter, n: u64) {
        self.0[counter as usize] += n;
    }

    /// A counter's value.
    #[must_use]
    #[inline]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Adds all of another's values.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; Counter::COUNT]
    }

    /// Names and values of all counters.
    pub fn named(&self) -> impl Iterator<Item = (String, u64)> {
        Counter::ALL.iter().map(|&counter| (counter.name().to_owned(), self.get(counter)))
    }
}
