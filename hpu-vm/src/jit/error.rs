//! Errors of translations.

use super::code_memory::CodeMemoryError;

/// Reason why an image was not translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
    /// Code cannot be generated for this machine.
    #[error("no code can be generated for this machine: {0}")]
    Host(String),
    /// No code was made for a handler.
    #[error("translating the code at {entry:#010x}: {reason}")]
    Code {
        /// Address of the handler's first instruction.
        entry: u32,
        /// Error text.
        reason: String,
    },
    /// Executable memory cannot be allocated.
    #[error(transparent)]
    Memory(#[from] CodeMemoryError),
}
