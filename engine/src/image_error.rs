//! Why an image cannot be loaded, or its handlers are not found.

use hpu_vm::LoadError;
use hpu_vm::memory::SpaceError;
use spin_abi::fault::Fault;

/// Why the handlers of an image are not found.
#[derive(Debug, thiserror::Error)]
pub enum EntriesError {
    /// The image has no handler under a name that is looked for.
    #[error(
        "handler image: it defines none of header_handler, payload_handler, completion_handler, or its init_handlers names none"
    )]
    NoHandler,
    /// The image's own function that tells its handlers was ended.
    #[error("handler image: init_handlers was ended: {0}")]
    Init(Fault),
    /// What that told is no function.
    #[error("handler image: init_handlers says that {kind} is at {address:#010x}, where there is no code")]
    BadHandler {
        /// The handler's usual name.
        kind: &'static str,
        /// The address.
        address: u32,
    },
    /// There is no memory to run that function in.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
}

/// Why an image cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image is not one this machine can run.
    #[error("handler image: {0}")]
    Load(#[from] LoadError),
    /// Its handlers are not found.
    #[error(transparent)]
    Entries(#[from] EntriesError),
    /// There is no memory for it.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
}
