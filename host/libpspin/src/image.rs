//! The program's handlers: one image, as PsPIN has one program memory.

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

/// An image in NIC memory.
#[derive(Debug)]
pub struct Loaded {
    /// Code and symbols.
    pub image: Image,
    /// Where it was loaded.
    pub memory: Arc<NicMemory>,
    /// The file, to know it again.
    file: Box<[u8]>,
    /// `None`: they cannot be translated.
    translations: Mutex<Translations>,
}

/// By the addresses of handlers.
type Translations = HashMap<Box<[u32]>, Option<Arc<Translation>>>;

/// Why an image was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// It is none that this machine can run.
    #[error(transparent)]
    Image(#[from] LoadError),
    /// Its function that names its handlers was ended.
    #[error(transparent)]
    Init(EntriesError),
    /// There is no memory for it.
    #[error(transparent)]
    Memory(#[from] SpaceError),
    /// The machine runs another one.
    #[error("another image is loaded, and there is one program memory")]
    Another,
}

impl Loaded {
    /// Loads `file` to `memory`, and lets it initialise itself.
    ///
    /// # Errors
    /// See [`ImageError`].
    pub fn new(file: Vec<u8>, memory: &Arc<NicMemory>) -> Result<Self, ImageError> {
        let image = Image::load(&file, &MACHINE)?;
        memory.load(&image)?;
        let own = HpuId { cluster: 0, hpu: 0 };
        match Entries::in_space(&image, &MACHINE, own, || memory.image_space(&image, own)) {
            // Programs find handlers by whatever name they have.
            Ok(_) | Err(EntriesError::NoHandler) => {}
            Err(error) => return Err(ImageError::Init(error)),
        }
        Ok(Self { image, memory: memory.clone(), file: file.into(), translations: Mutex::default() })
    }

    /// Whether it was loaded from a file with these bytes.
    #[must_use]
    pub fn is(&self, file: &[u8]) -> bool {
        *self.file == *file
    }

    /// Whether a handler can begin there.
    #[must_use]
    pub fn is_code(&self, address: u32) -> bool {
        address.is_multiple_of(2) && self.image.code().fetch(address).is_some()
    }

    /// The functions at these addresses as machine code that counts its instructions: they are what time is made of. `None`: they
    /// have to be interpreted, and `report` was told why when that was found out.
    pub fn translation(&self, entries: &[u32], report: impl FnOnce(&TranslateError)) -> Option<Arc<Translation>> {
        // Every step leaves the map whole.
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
            // No task is lost to find out.
            any_device: true,
            result: false,
            described: true,
        };
        Translation::new(Source { code: self.image.code(), entries, taken: &taken }, options)
    }
}

/// Contexts' scratchpads and handler memory lie side by side in pages of one memory: only exact checks keep them apart.
pub const CHECKS: Checks = Checks::Exact;
