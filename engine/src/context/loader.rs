//! State shared by contexts: images, once per user, and translations, once for all. Any thread may load.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use hpu_vm::Image;
use hpu_vm::jit::{Options, Source, TranslateError, Translation, Translations};
use hpu_vm::memory::Region;
use hpu_vm::weak_cache::WeakCache;
use spin_abi::control::{Compat, Engine};
use spin_abi::map::{Machine, PSPIN_QUEUES};
use spin_abi::unit::UnitIndex;

use crate::context::FileId;
use crate::context::image_error::ImageError;
use crate::context::perf_map::PerfMap;
use crate::hook::{Programs, Refusal};
use crate::install::ledger::Ledger;
use crate::message::flow_numbers::FlowNumbers;
use spin_pspin::hpu::entries::Entries;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::ImageMemory;
use spin_pspin::ids::Handler;

/// User, file, and unit of an image in memory.
type ImageKey = (u32, FileId, u32);

/// The units of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitSizes {
    /// Number of units.
    pub count: u32,
    /// Number of flow ids that each has: those of its queues, then those of programs in the XDP hook.
    pub flows: u32,
}

impl UnitSizes {
    /// `count` units, whose workers have so many flow ids for their queues together.
    fn new(count: u32, of_queues: u32, machine: &Machine) -> Self {
        Self { count, flows: of_queues + machine.hpus() }
    }

    /// The unit with this `number` among `units` that run a context.
    pub(crate) const fn index(&self, machine: &Machine, number: u32, units: u32) -> UnitIndex {
        UnitIndex { number, units, hpus: machine.hpus(), flows: self.flows }
    }

    /// The flow ids of programs in the XDP hook, by `hpu_gid`.
    pub(crate) fn hook_flows(&self, machine: &Machine) -> Range<u32> {
        self.flows - machine.hpus()..self.flows
    }
}

/// Loads images for one machine.
#[derive(Debug)]
pub struct Loader {
    /// The machine that handlers see.
    pub machine: Machine,
    /// The execution engine of handlers.
    pub engine: Engine,
    /// The message rules of contexts that specify none: spind's own or FPsPIN's.
    pub compat: Compat,
    /// The units that there are.
    pub units: UnitSizes,
    /// Images by user, file, and unit of the context if units have handler memory of their own. Each one lives as long as a context uses
    /// it.
    images: WeakCache<ImageKey, LoadedImage>,
    /// As `images`, in memory that programs in the XDP hook access.
    hook_images: WeakCache<ImageKey, LoadedImage>,
    /// Loads programs into the XDP hook, when the NIC is open and has one.
    programs: OnceLock<Result<Arc<dyn Programs>, Refusal>>,
    translations: Translations,
    /// Whether handlers may run in the kernel's XDP hook.
    pub kernel_tier: bool,
    /// The memory that each user takes.
    pub ledger: Arc<Ledger>,
    /// Names of translated code for `perf`, if they are wanted.
    perf_map: Option<PerfMap>,
}

impl Loader {
    /// A loader that has loaded nothing.
    #[must_use]
    pub fn new(machine: Machine, engine: Engine) -> Self {
        let (compat, images, hook_images, programs, translations, kernel_tier, ledger, perf_map) = Default::default();
        let units = UnitSizes::new(1, PSPIN_QUEUES, &machine);
        Self {
            machine,
            engine,
            compat,
            units,
            images,
            hook_images,
            programs,
            translations,
            kernel_tier,
            ledger,
            perf_map,
        }
    }

    /// Sets the default message rules.
    #[must_use]
    pub fn with_compat(self, compat: Compat) -> Self {
        Self { compat, ..self }
    }

    /// Sets the number of units, whose workers have `queues` message queues each.
    #[must_use]
    pub fn with_units(self, count: u32, queues: u32) -> Self {
        let of_queues = FlowNumbers::end(queues, self.machine.clusters);
        Self { units: UnitSizes::new(count, of_queues, &self.machine), ..self }
    }

    /// Sets whether handlers may run in the kernel's XDP hook.
    #[must_use]
    pub fn with_kernel_tier(self, kernel_tier: bool) -> Self {
        Self { kernel_tier, ..self }
    }

    /// Limits the memory that users take.
    #[must_use]
    pub fn with_ledger(self, ledger: Arc<Ledger>) -> Self {
        Self { ledger, ..self }
    }

    /// Sets the map that gets the names of new translations.
    #[must_use]
    pub fn with_perf_map(self, perf_map: Option<PerfMap>) -> Self {
        Self { perf_map, ..self }
    }

    /// Loads the image in `file` for user `uid`. An image that is in use is shared, with its memory.
    ///
    /// # Errors
    /// [`ImageError::Load`], [`ImageError::Memory`], and those of [`Entries::of`].
    pub fn load(&self, file: &[u8], uid: u32) -> Result<Arc<LoadedImage>, ImageError> {
        self.load_for_unit(file, uid, 0)
    }

    /// Loads an image as [`Loader::load`] does, with other memory for each `unit` of a context.
    ///
    /// # Errors
    /// As [`Loader::load`].
    pub fn load_for_unit(&self, file: &[u8], uid: u32, unit: u32) -> Result<Arc<LoadedImage>, ImageError> {
        let key = (uid, FileId::of(file), unit);
        self.load_to(&self.images, key, file, |image| ImageMemory::new(image).map_err(ImageError::from))
    }

    /// Loads an image to memory that `make` makes, unless it is among the `images` in use.
    fn load_to<E: From<ImageError>>(
        &self,
        images: &WeakCache<ImageKey, LoadedImage>,
        key: ImageKey,
        file: &[u8],
        make: impl FnOnce(&Image) -> Result<ImageMemory, E>,
    ) -> Result<Arc<LoadedImage>, E> {
        let image = Image::load(file, &self.machine).map_err(ImageError::from)?;
        images.get(key, || {
            let memory = make(&image)?;
            let entries = Entries::of(&image, &memory, &self.machine).map_err(ImageError::from)?;
            Ok(LoadedImage { image, memory, entries, any_device: AtomicBool::new(false) })
        })
    }

    /// Has programs loaded into the XDP hook from now on, or says why none are.
    pub fn set_programs(&self, programs: Result<Arc<dyn Programs>, Refusal>) {
        // There is one NIC.
        let _ = self.programs.set(programs);
    }

    /// What loads programs into the XDP hook.
    ///
    /// # Errors
    /// Why there is nothing that does.
    pub fn programs(&self) -> Result<&Arc<dyn Programs>, Refusal> {
        let Some(programs) = self.programs.get() else { return Err(Refusal("spind has no hook yet".to_owned())) };
        programs.as_ref().map_err(Clone::clone)
    }

    /// As [`Loader::load`], with memory that `make` makes and programs in the XDP hook access.
    ///
    /// # Errors
    /// As [`Loader::load`], and those of `make`.
    pub fn load_in_hook(
        &self,
        file: &[u8],
        uid: u32,
        make: impl FnOnce(usize) -> Result<Arc<Region>, Refusal>,
    ) -> Result<Arc<LoadedImage>, Refusal> {
        self.load_to(&self.hook_images, (uid, FileId::of(file), 0), file, |image| ImageMemory::new_in(image, make))
    }

    /// Translates handlers of an image to machine code. The perf map names a new translation after `context`.
    ///
    /// # Errors
    /// See [`TranslateError`].
    pub fn translate(
        &self,
        LoadedImage { image, .. }: &LoadedImage,
        handlers: &[Option<Handler>; 3],
        options: Options,
        context: &str,
    ) -> Result<Arc<Translation>, TranslateError> {
        let entries: Vec<u32> = handlers.iter().flatten().map(|handler| handler.address).collect();
        let taken = image.addresses_taken();
        self.translations.get(Source { code: image.code(), entries: &entries, taken: &taken }, options, |new| {
            let added = self.perf_map.as_ref().map_or(Ok(()), |map| map.add(new, image, context));
            if let Err(error) = added {
                tracing::warn!("{error}; it is not updated any more");
            }
        })
    }
}
