//! State that a handler's function resets when a task starts.

/// Resets that a handler's function performs when a task starts, because its code uses what they reset.
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
    /// All of it has been reset before.
    pub(crate) const DONE: Self = Self { command: true, reservation: true, vectors: true };
}
