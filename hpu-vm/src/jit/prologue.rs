//! State that a handler's function resets when a task starts.

/// Resets that a handler's function performs when a task starts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prologue {
    /// The command registers are zeroed.
    pub(crate) command: bool,
    /// The reservation is cleared.
    pub(crate) reservation: bool,
    /// Vector type and length are cleared.
    pub(crate) vectors: bool,
}

impl Prologue {
    /// Resets of either prologue.
    pub(crate) const fn union(self, other: Self) -> Self {
        Self {
            command: self.command || other.command,
            reservation: self.reservation || other.reservation,
            vectors: self.vectors || other.vectors,
        }
    }

    /// Resets that `other` does not perform.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self {
            command: self.command && !other.command,
            reservation: self.reservation && !other.reservation,
            vectors: self.vectors && !other.vectors,
        }
    }
}
