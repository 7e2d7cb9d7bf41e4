//! A loaded image with its memory and its handlers.

use std::sync::atomic::AtomicBool;

use hpu_vm::Image;

use crate::hpu::entries::Entries;
use crate::hpu::memory::ImageMemory;

/// An image and the memory all its contexts share. An image is loaded once per user, whatever the number of contexts.
#[derive(Debug)]
pub struct LoadedImage {
    /// Code and symbols.
    pub image: Image,
    /// `.data`, `.bss`, `.l2_handler_data`.
    pub memory: ImageMemory,
    /// Which of its functions are handlers.
    pub entries: Entries,
    /// Its handlers reach devices at addresses that are not seen in the code: translations have to allow for that.
    pub any_device: AtomicBool,
}
