//! Why an image cannot be loaded.

use hpu_vm::LoadError;
use hpu_vm::memory::SpaceError;
use spin_pspin::hpu::entries::EntriesError;

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
