//! Puts the handler of a request into the XDP hook: memory that both tiers see, and the program.

use std::sync::Arc;

use hpu_vm::Image;
use hpu_vm::bpf::layout::{Maps, ReplySource, SLOT};
use hpu_vm::bpf::{Layout, Options, queue};
use hpu_vm::memory::Region;
use spin_abi::control::{Abi, BillKind, Checks, Install, RunInfo};
use spin_pspin::hpu::entries::Entries;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::{ContextMemory, saturate};

use super::eligible;
use super::memory::{charge_placed, context_memory};
use crate::context::loader::Loader;
use crate::hook::memory::{QUEUE, description, layout};
use crate::hook::{Hook, Programs, Refusal, budget};
use crate::install::error::TierRefusal;
use crate::install::ledger::Charge;
use crate::install::{HOST_ADDRESS, InstallError, MatchSpec};

/// A request that may be tried in the hook.
pub(super) struct Request<'r> {
    pub(super) install: &'r Install,
    pub(super) run: &'r RunInfo,
    pub(super) rules: &'r MatchSpec,
    pub(super) entries: &'r Entries,
    pub(super) file: &'r [u8],
    pub(super) uid: u32,
}

/// Where a context's handlers are: image and memory, and the program if they are in the hook.
pub(super) struct Placed {
    pub(super) image: Arc<LoadedImage>,
    pub(super) memory: ContextMemory,
    pub(super) hook: Option<Arc<Hook>>,
    /// The image and all memory, on the user's bill.
    pub(super) charges: Vec<Arc<Charge>>,
}

impl Placed {
    /// A context in user space.
    ///
    /// # Errors
    /// [`InstallError::TooLarge`], the user's limit, and that there is no memory.
    pub(super) fn in_user_space(
        request: &Request<'_>,
        loader: &Loader,
        image: Arc<LoadedImage>,
    ) -> Result<Self, InstallError> {
        let make = |len| Region::new(len).map_err(InstallError::from);
        let (parts, hpus) = ((&image.image, request.entries), request.run.hpus);
        let memory = context_memory(request.install, hpus, parts, &loader.machine, make)?;
        let charges = charge_placed((loader, request.uid), (&image, request.file), &memory)?;
        Ok(Self { image, memory, hook: None, charges })
    }
}

impl From<Refusal> for TierRefusal {
    fn from(Refusal(why): Refusal) -> Self {
        Self::Unable(why)
    }
}

impl From<InstallError> for TierRefusal {
    fn from(error: InstallError) -> Self {
        Self::Unable(error.to_string())
    }
}

impl Request<'_> {
    /// Loads the program, if that is `wanted`. Its packets go to user space as yet. `None`: it is not wanted.
    ///
    /// # Errors
    /// Why it is not allowed, and [`TierRefusal::Unable`]: why the handler cannot run in the hook.
    pub(super) fn enter(
        &self,
        wanted: Result<bool, TierRefusal>,
        loader: &Loader,
        image: &Image,
    ) -> Result<Option<Placed>, TierRefusal> {
        if !wanted? {
            return Ok(None);
        }
        let programs = loader.programs()?;
        let replies = eligible::check(self.install, self.run, self.rules, self.entries, image)?;
        let make = |len| programs.region(len).map_err(TierRefusal::from);
        let loaded = loader.load_in_hook(self.file, self.uid, |len| programs.region(len))?;
        let memory = context_memory(self.install, self.run.hpus, (image, self.entries), &loader.machine, make)?;
        let mut charges = charge_placed((loader, self.uid), (&loaded, self.file), &memory)?;
        let (hook, charge) = self.load(programs, loader, (&loaded, &memory), replies)?;
        charges.push(Arc::new(charge));
        Ok(Some(Placed { image: loaded, memory, hook: Some(Arc::new(hook)), charges }))
    }

    /// The first `flow_id` in the hook. Handlers of ABI `pspin` and `fpspin` know 256, all of which messages in user space may have.
    fn first_flow(&self, loader: &Loader) -> u32 {
        match self.run.abi {
            Abi::Pspin | Abi::Fpspin => 0,
            _ => loader.units.hook_flows(&loader.machine).start,
        }
    }

    /// Loads the program, with memory that only this needs on the user's bill.
    fn load(
        &self,
        programs: &Arc<dyn Programs>,
        loader: &Loader,
        (image, memory): (&LoadedImage, &ContextMemory),
        replies: Option<ReplySource>,
    ) -> Result<(Hook, Charge), TierRefusal> {
        let whole_pages = self.run.checks == Checks::Page;
        let layout =
            layout(&loader.machine, &image.memory, memory, whole_pages, (self.run.hpus, self.first_flow(loader)));
        let processors = programs.processors().min(layout.max_processors());
        let len = self.install.host_mem;
        let host_queue = (len > 0).then_some(QUEUE);
        let layout = Layout { processors, replies, host_queue, ..layout };
        let queue = (len > 0).then(|| programs.region((processors * queue::PART) as usize)).transpose()?;
        let slots = programs.region((layout.processors * SLOT) as usize)?;
        let bytes = slots.len() + queue.as_ref().map_or(0, |queue| queue.len());
        let charge = loader.ledger.charge(self.uid, BillKind::ContextMemory, bytes as u64);
        let charge = charge.map_err(InstallError::from)?;
        // Contexts of several units stay in user space.
        let unit = loader.units.index(&loader.machine, 0, 1);
        let written = slots.write(0, &layout.slots(&description(memory, (HOST_ADDRESS, saturate(len)), unit)));
        debug_assert!(written.is_some(), "the region was made for the slots");
        let configuration = programs.region(Maps::CONFIGURATION_SIZE as usize)?;
        let written = configuration.write(Maps::BUDGET as usize, &budget(self.run.watchdog_us).to_ne_bytes());
        debug_assert!(written.is_some(), "the region was made for the configuration");
        let options = Options { decides: self.run.verdicts, ..Options::default() };
        let maps = [&configuration, &slots, image.memory.region(), memory.region()];
        let maps: Vec<_> = maps.into_iter().chain(&queue).collect();
        let program = programs.load(&self.install.name, self.file, &layout, options, &maps)?;
        Ok((Hook::new(programs.clone(), program, slots, queue, &layout)?, charge))
    }
}
