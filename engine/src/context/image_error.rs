//! Errors of loading an image.

use hpu_vm::LoadError;
use hpu_vm::memory::SpaceError;
use spin_pspin::hpu::entries::EntriesError;

use crate::hook::Refusal;

/// The reason why an image cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image is not one this machine can run.
    #[error("handler image: {0}")]
    Load(#[from] LoadError),
    /// The handlers were not found.
    #[error(transparent)]
    Entries(#[from] EntriesError),
    /// The memory for the image cannot be allocated.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
}

impl From<ImageError> for Refusal {
    fn from(error: ImageError) -> Self {
        Self::of(&error)
    }
}
