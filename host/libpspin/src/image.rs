//! The program's handlers: a single image, as PsPIN has a single program memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hpu_vm::jit::{Atomics, Options, Source, TranslateError, Translation};
use hpu_vm::memory::SpaceError;
use hpu_vm::{Checks, Image, LoadError};
use spin_pspin::hpu::entries::{Entries, EntriesError};
use spin_pspin::hpu::memory::HpuId;

use crate::MACHINE;
use crate::memory::NicMemory;

/// Environment variable with the path of the image, for programs that name none.
pub const IMAGE_VARIABLE: &str = "PSPIN_IMAGE";

/// An image loaded into NIC memory.
#[derive(Debug)]
pub struct Loaded {
    /// Code and symbols.
    pub image: Image,
    /// Memory that holds the image.
    pub memory: Arc<NicMemory>,
    /// Bytes of the file, to recognise it.
    file: Box<[u8]>,
    /// Compiled code by handler addresses; `None` for handlers that cannot be compiled.
    translations: Mutex<Translations>,
}

/// Compiled code by handler addresses.
type Translations = HashMap<Box<[u32]>, Option<Arc<Translation>>>;

/// Reason why an image was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// The file is not an image that this machine can run.
    #[error(transparent)]
    Image(#[from] LoadError),
    /// The function that names the handlers was ended by an error.
    #[error(transparent)]
    Init(EntriesError),
    /// Memory for the image cannot be allocated.
    #[error(transparent)]
    Memory(#[from] SpaceError),
    /// Another image is loaded.
    #[error("another image is loaded, and there is one program memory")]
    Another,
}

impl Loaded {
    /// Loads `file` into `memory` and runs its initialisation.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn new(file: Vec<u8>, memory: &Arc<NicMemory>) -> Result<Self, ImageError> {
        let image = Image::load(&file, &MACHINE)?;
        memory.load(&image)?;
        let own = HpuId { cluster: 0, hpu: 0 };
        // The handlers that it declares are not used: programs look handlers up by any name.
        Entries::in_space(&image, &MACHINE, own, || memory.image_space(&image, own)).map_err(ImageError::Init)?;
        Ok(Self { image, memory: memory.clone(), file: file.into(), translations: Mutex::default() })
    }

    /// Whether it was loaded from a file with these bytes.
    #[must_use]
    pub fn is(&self, file: &[u8]) -> bool {
        *self.file == *file
    }

    /// Whether a handler can begin at an address.
    #[must_use]
    pub fn is_code(&self, address: u32) -> bool {
        address.is_multiple_of(2) && self.image.code().fetch(address).is_some()
    }

    /// Returns the functions at these addresses as machine code that counts instructions, from which virtual time is
    /// computed. `None`: they must be interpreted; the first failure passes the reason to `report`.
    pub fn translation(&self, entries: &[u32], report: impl FnOnce(&TranslateError)) -> Option<Arc<Translation>> {
        // The map is consistent after every step, so poisoning is ignored.
        let mut known = self.translations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(translation) = known.get(entries) {
            return translation.clone();
        }
        let translation = self.translate(entries).inspect_err(report).ok().map(Arc::new);
        known.insert(entries.into(), translation.clone());
        translation
    }

    fn translate(&self, entries: &[u32]) -> Result<Translation, TranslateError> {
        let taken = self.image.addresses_taken();
        let options = Options {
            checks: CHECKS,
            atomics: Atomics::Shared,
            counting: true,
            observe: false,
            // Compile device accesses in advance, so that no task is lost to discovering them.
            any_device: true,
            result: false,
            described: true,
        };
        Translation::new(Source { code: self.image.code(), entries, taken: &taken }, options)
    }
}

/// Exact checks are required: scratchpads and handler memory of several contexts share pages.
pub const CHECKS: Checks = Checks::Exact;
