//! A loaded image with its memory and its handlers.

use std::sync::atomic::AtomicBool;

use hpu_vm::Image;

use crate::hpu::entries::Entries;
use crate::hpu::memory::ImageMemory;

/// An image and the memory that all its contexts share. An image is loaded once per user, for any number of contexts.
#[derive(Debug)]
pub struct LoadedImage {
    /// Code and symbols.
    pub image: Image,
    /// `.data`, `.bss`, `.l2_handler_data`.
    pub memory: ImageMemory,
    /// The handlers that the image declares.
    pub entries: Entries,
    /// Whether its handlers access devices at addresses that the code does not show. Translations then have to check
    /// for that.
    pub any_device: AtomicBool,
}
