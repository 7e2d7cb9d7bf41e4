//! Installing and removing execution contexts: what an application asked for is checked here, off the packet path.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hpu_vm::LoadError;
use hpu_vm::jit::{self, Atomics, Options, Translation};
use hpu_vm::memory::SpaceError;
use spin_abi::control::{
    Abi, Area, Areas, Checks, Compat, ContextInfo, Engine as Kinds, Full, Install, Placement, RunInfo,
};
use spin_abi::counters::Counter;
use spin_abi::fault::Fault;
use spin_abi::map::{Machine, PACKET_WINDOW};
use spin_matcher::{Eom, KeySpec, ListError, ParseError, Rules, Table, TableEntry, TableError};
use spin_nic::NicError;
use spin_nic::affinity::drop_aside;
use spin_shm::{Region, RegionError};

use crate::check::{Twin, TwinMemory};
use crate::config::Limits;
use crate::context::{Context, Handler, HostMemory, LINES_PRINTED, LoadedImage, Share, Slot, Texts};
use crate::counts::Counts;
use crate::descriptor::{Descriptor, News};
use crate::hpu::{Hpu, Hpus};
use crate::inbound::Routes;
use crate::loader::Loader;
use crate::memory::{ContextMemory, ContextSizes, saturate};
use crate::nic_memory::NicMemory;
use crate::pipeline::{Engine, context};
use crate::schedule::MOST_WEIGHT;

/// Address by which handlers name host memory until the application says where it mapped it (PsPIN's
/// `PCIE_START_ADDR`).
pub const HOST_ADDRESS: u64 = 0x1000_0000_0000_0000;
/// How long an open message of a context that was replaced may wait for its next packet.
const REPLACED: Duration = Duration::from_secs(10);
/// Longest name of a context, in bytes.
const MAX_NAME: usize = 64;
/// Most bytes of rules, predicate and key: what `list` shows of all contexts has to fit a message.
const MAX_TEXT: usize = 4096;

/// Why a context was not installed, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The image is not one this machine can run.
    #[error("handler image: {0}")]
    Image(#[from] LoadError),
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
    /// More HPUs than handlers of that machine know.
    #[error("abi {abi}: its handlers know {known} clusters, this machine has {clusters}; run spind --preset {abi}")]
    Clusters {
        /// Whose handlers they are.
        abi: Abi,
        /// What they know.
        known: u32,
        /// What there is.
        clusters: u32,
    },
    /// A context that matches nothing is of no use.
    #[error("no rule: say which packets the handlers are for, e.g. --rule 'udp dport 9999'")]
    NoRule,
    /// A rule is not understood.
    #[error(transparent)]
    Rule(#[from] ListError),
    /// The end-of-message predicate is not understood.
    #[error("end of message: {0}")]
    Eom(ParseError),
    /// The key is not understood.
    #[error("message key: {0}")]
    Key(ParseError),
    /// The rules of all contexts together do not fit.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A name that is too long or would garble logs and terminals.
    #[error("name {0:?}: at most {MAX_NAME} printable ASCII characters")]
    Name(String),
    /// Too much text.
    #[error("rules, end of message and key of {0} bytes together: at most {MAX_TEXT}; use prefixes and ranges")]
    Text(usize),
    /// More than the machine or the configuration allows.
    #[error("{what} of {asked} bytes: at most {limit}")]
    TooLarge {
        /// What was asked for.
        what: &'static str,
        /// How much.
        asked: u64,
        /// How much there is.
        limit: u64,
    },
    /// No limit at all, or one beyond the daemon's.
    #[error("{what} {asked}: between 1 and {limit}")]
    Limit {
        /// Which limit.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// The daemon's.
        limit: u64,
    },
    /// There is no memory for it.
    #[error("memory of handlers: {0}")]
    Memory(#[from] SpaceError),
    /// No context is left.
    #[error("all {0} contexts are in use; remove one, or raise limits.contexts")]
    Full(usize),
    /// Host memory cannot be made.
    #[error("host memory: {0}")]
    HostMemory(#[from] RegionError),
    /// No such context.
    #[error("no context {0} is installed")]
    NoSuchContext(u32),
    /// Somebody else's context.
    #[error("context {id} belongs to user {owner}")]
    NotYours {
        /// The context.
        id: u32,
        /// Its user.
        owner: u32,
    },
    /// The context has no host memory.
    #[error("context {0} has no host memory")]
    NoHostMemory(u32),
    /// The engine's threads have ended.
    #[error("spind is stopping")]
    Stopped,
    /// The NIC refused the rules: those of all contexts that were to be installed together.
    #[error(transparent)]
    Nic(Arc<NicError>),
}

impl From<NicError> for InstallError {
    fn from(error: NicError) -> Self {
        Self::Nic(Arc::new(error))
    }
}

/// By what a context is known to users, and among the engine's contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its id.
    pub id: u32,
    /// Its slot.
    pub slot: Slot,
}

/// A context that is checked and whose memory is made: installing it takes no more than linking it in. It has an HPU on each
/// of the machine's clusters; [`Prepared::split_off`] shares them out between threads.
#[derive(Debug)]
pub struct Prepared {
    /// Where it goes, the same on all threads; `None`: as the engine likes.
    pub(crate) place: Option<Place>,
    install: Install,
    uid: u32,
    image: Arc<LoadedImage>,
    translation: Option<Arc<Translation>>,
    options: Options,
    hpus: Hpus,
    memory: ContextMemory,
    matching: Matching,
    key: KeySpec,
    host: Option<Arc<Region>>,
    descriptor: Arc<Region>,
    limits: jit::Limits,
    run: RunInfo,
}

impl Prepared {
    /// Checks what user `uid` asks for, and translates the image.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn new(
        install: Install,
        file: &[u8],
        uid: u32,
        loader: &Loader,
        limits: &Limits,
    ) -> Result<Self, InstallError> {
        check_texts(&install)?;
        let matching = Matching::parse(&install.rules, install.eom.as_deref())?;
        let key = key(&install, loader.compat)?;
        let run = run_info(&install, limits, loader)?;
        let known = if install.abi == Abi::Fpspin { Machine::FPSPIN.clusters } else { Machine::MAX_CLUSTERS };
        if loader.machine.clusters > known {
            return Err(InstallError::Clusters { abi: install.abi, known, clusters: loader.machine.clusters });
        }
        let image = loader.load(file, uid)?;
        let memory = context_memory(&install, run.hpus, &image, &loader.machine)?;
        let hpus = hpus(&loader.machine, &image, &memory, &run)?;
        let host = host_memory(&install, limits)?;
        let descriptor = Descriptor::create(loader.machine.clusters)?;
        let options = options(&run, image.any_device.load(Relaxed));
        let translation = translate(loader, &image, &run, options, &install.name);
        let limits = jit::Limits { time: Some(run.watchdog_us), instructions: run.instruction_limit };
        let place = None;
        Ok(Self {
            place,
            install,
            uid,
            image,
            translation,
            options,
            hpus,
            memory,
            matching,
            key,
            host,
            descriptor,
            limits,
            run,
        })
    }

    /// The part of it for clusters from `cluster` on; those before stay.
    #[must_use]
    pub fn split_off(&mut self, cluster: u32) -> Self {
        let hpus = self.hpus.split_off(cluster);
        Self {
            place: self.place,
            install: self.install.clone(),
            uid: self.uid,
            image: self.image.clone(),
            translation: self.translation.clone(),
            options: self.options,
            hpus,
            memory: self.memory.clone(),
            matching: self.matching.clone(),
            key: self.key.clone(),
            host: self.host.clone(),
            descriptor: self.descriptor.clone(),
            limits: self.limits,
            run: self.run,
        }
    }

    /// Whether it takes the place of another context.
    #[must_use]
    pub const fn replaces(&self) -> bool {
        self.install.replaces.is_some()
    }

    /// The host memory, to hand its descriptor to the application.
    #[must_use]
    pub fn host(&self) -> Option<Arc<Region>> {
        self.host.clone()
    }

    /// The NIC memory that the application may reach.
    #[must_use]
    pub fn nic_memory(&self) -> NicMemory {
        NicMemory::new(&self.image, &self.memory)
    }

    /// Where its handlers and handler memory are.
    #[must_use]
    pub fn areas(&self) -> Areas {
        let handlers = self.image.entries.handlers;
        let handler = |handler: Option<Handler>| handler.map(|Handler { address, size }| Area { address, size });
        let (address, size) = self.memory.handler();
        Areas { handlers: handlers.map(|it| handler(it).unwrap_or_default()), handler_mem: Area { address, size } }
    }
}

/// Which packets a context gets, and which of them end their messages.
#[derive(Clone, Debug)]
pub struct Matching {
    rules: Rules,
    eom: Eom,
}

impl Matching {
    /// Reads both from their text.
    ///
    /// # Errors
    /// [`InstallError::NoRule`], [`InstallError::Rule`], [`InstallError::Eom`], [`InstallError::Table`], [`InstallError::Text`].
    pub fn parse(rules: &[String], eom: Option<&str>) -> Result<Self, InstallError> {
        check_length(rules.iter().map(String::as_str).chain(eom))?;
        if rules.is_empty() {
            return Err(InstallError::NoRule);
        }
        let rules = Rules::parse_list(rules)?;
        let eom = eom.map_or(Ok(Eom::Always), str::parse).map_err(InstallError::Eom)?;
        // Whether the rules alone fit a table: known before the engine's thread is bothered.
        let entry = TableEntry { rules, eom, ..TableEntry::default() };
        Table::new(std::slice::from_ref(&entry))?;
        Ok(Self { rules: entry.rules, eom: entry.eom })
    }
}

/// The key asked for, else that of the machine whose rules of messages are the context's.
fn key(install: &Install, compat: Compat) -> Result<KeySpec, InstallError> {
    match &install.key {
        Some(text) => text.parse().map_err(InstallError::Key),
        None if compat == Compat::Fpspin && install.abi == Abi::Fpspin => Ok(KeySpec::fpspin()),
        None => Ok(KeySpec::default()),
    }
}

fn check_texts(install: &Install) -> Result<(), InstallError> {
    let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if install.name.len() > MAX_NAME || !install.name.bytes().all(printable) {
        return Err(InstallError::Name(install.name.chars().take(MAX_NAME).collect()));
    }
    check_length(install.rules.iter().chain(&install.eom).chain(&install.key).map(String::as_str))
}

fn check_length<'t>(texts: impl Iterator<Item = &'t str>) -> Result<(), InstallError> {
    // Each rule counts for something even when empty.
    let bytes = texts.map(|text| text.len() + 1).sum();
    if bytes > MAX_TEXT { Err(InstallError::Text(bytes)) } else { Ok(()) }
}

fn context_memory(
    install: &Install,
    hpus: u32,
    LoadedImage { image, entries, .. }: &LoadedImage,
    machine: &Machine,
) -> Result<ContextMemory, InstallError> {
    let base = image.handler_mem_end();
    let end = machine.handler_mem_base + machine.handler_mem_size;
    at_most("handler memory", install.handler_mem, end.saturating_sub(base))?;
    at_most("scratchpad", install.scratchpad, machine.scratchpad_size())?;
    let sizes = ContextSizes { hpus, handler: install.handler_mem, scratchpad: install.scratchpad };
    let memory = ContextMemory::new(machine, base, sizes)?;
    Ok(match entries.handler_mem {
        Some(address) => memory.told_handler(address, image.handler_mem_from(address).unwrap_or(0)),
        None => memory,
    })
}

/// A context's HPUs on all clusters.
fn hpus(machine: &Machine, image: &LoadedImage, memory: &ContextMemory, run: &RunInfo) -> Result<Hpus, SpaceError> {
    let (checks, placement) = (checks(run), run.placement);
    let twins = match run.engine {
        Kinds::Check => Some(Arc::new(TwinMemory::new(&image.memory, memory)?)),
        Kinds::Interp | Kinds::Jit => None,
    };
    let hpu = |own| {
        let mut hpu = Hpu::new(machine, own, &image.memory, memory, placement, checks)?;
        if let Some(twins) = &twins {
            hpu.compare_with(Twin::new(machine, own, twins.clone(), placement, checks)?);
        }
        Ok(hpu)
    };
    memory.hpus().map(hpu).collect::<Result<_, _>>().map(|hpus| Hpus::new(run.hpus, hpus))
}

const fn checks(run: &RunInfo) -> hpu_vm::Checks {
    match run.checks {
        Checks::Page => hpu_vm::Checks::Page,
        Checks::Exact => hpu_vm::Checks::Exact,
    }
}

const fn options(run: &RunInfo, any_device: bool) -> Options {
    Options {
        checks: checks(run),
        atomics: match run.placement {
            Placement::Home => Atomics::Home,
            Placement::Any => Atomics::Shared,
        },
        counting: run.instruction_limit.is_some(),
        observe: matches!(run.engine, Kinds::Check),
        any_device,
        result: run.verdicts,
    }
}

/// The image as machine code; `None` where it is interpreted.
fn translate(
    loader: &Loader,
    image: &LoadedImage,
    run: &RunInfo,
    options: Options,
    name: &str,
) -> Option<Arc<Translation>> {
    if run.engine == Kinds::Interp {
        return None;
    }
    let translation = loader.translate(image, options);
    translation.inspect_err(|error| tracing::warn!("context {name:?} is interpreted: {error}")).ok()
}

fn at_most(what: &'static str, asked: impl Into<u64>, limit: impl Into<u64>) -> Result<(), InstallError> {
    let (asked, limit) = (asked.into(), limit.into());
    if asked <= limit { Ok(()) } else { Err(InstallError::TooLarge { what, asked, limit }) }
}

fn run_info(install: &Install, limits: &Limits, loader: &Loader) -> Result<RunInfo, InstallError> {
    let watchdog_us = limit("time limit in microseconds", install.watchdog_us, limits.watchdog_us)?;
    let most = limits.instruction_limit;
    let instruction_limit = match install.instruction_limit {
        None => most,
        asked => Some(limit("instruction limit", asked, most.unwrap_or(u64::MAX))?),
    };
    let weight = limit("weight", Some(install.weight.unwrap_or(1).into()), MOST_WEIGHT.into())?;
    let hpus = limit("HPUs", Some(install.hpus.unwrap_or(1).into()), loader.machine.hpus_per_cluster.into())?;
    let Install { abi, checks, isolation, placement, message_timeout_us, doorbell_us, full, verdicts, .. } = *install;
    if message_timeout_us.is_some() {
        limit("message timeout in microseconds", message_timeout_us, u64::MAX)?;
    }
    Ok(RunInfo {
        engine: loader.engine,
        abi,
        checks,
        isolation,
        placement,
        watchdog_us,
        instruction_limit,
        message_timeout_us,
        doorbell_us,
        weight: saturate(weight),
        full,
        hpus: saturate(hpus),
        verdicts,
    })
}

/// The limit asked for, else the daemon's.
fn limit(what: &'static str, asked: Option<u64>, limit: u64) -> Result<u64, InstallError> {
    match asked {
        None => Ok(limit),
        Some(asked) if (1..=limit).contains(&asked) => Ok(asked),
        Some(asked) => Err(InstallError::Limit { what, asked, limit }),
    }
}

fn host_memory(install: &Install, limits: &Limits) -> Result<Option<Arc<Region>>, InstallError> {
    at_most("host memory", install.host_mem, limits.host_mem)?;
    Ok(match install.host_mem {
        0 => None,
        len => Some(Arc::new(Region::create(len)?)),
    })
}

/// On whose behalf a context is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub u32);

impl User {
    fn may_change(self, context: &Context) -> bool {
        self.0 == 0 || self.0 == context.uid
    }
}

/// What is to change when a context is linked in.
struct Planned {
    id: u32,
    entry: TableEntry,
    /// The context that it replaces.
    predecessor: Option<Slot>,
    table: Table,
    /// Those of the table before.
    slots: Vec<Slot>,
    /// Where its own goes there.
    range: Range<usize>,
}

impl Engine {
    /// Links a prepared context in as [`Engine::link`] does, tells the NIC, and returns its id: for an engine that has the NIC
    /// to itself.
    ///
    /// # Errors
    /// As there, and [`InstallError::Nic`]; nothing has changed then.
    pub fn install(&mut self, prepared: Prepared, limits: &Limits) -> Result<u32, InstallError> {
        let id = self.link(prepared, limits)?;
        if let Err(error) = self.steer(&self.routes) {
            self.undo_link(id)?;
            return Err(error);
        }
        self.retire_replaced(id)?;
        Ok(id)
    }

    /// Links a prepared context in, behind all others in priority or in place of the one that it replaces, and returns its id.
    /// The NIC does not know yet: see [`spin_nic::Queue::steering`].
    ///
    /// # Errors
    /// [`InstallError::Full`], [`InstallError::Table`], and [`InstallError::NoSuchContext`] or [`InstallError::NotYours`] of the
    /// one that it replaces; nothing has changed then.
    pub fn link(&mut self, prepared: Prepared, limits: &Limits) -> Result<u32, InstallError> {
        let planned = self.plan_link(&prepared, limits);
        let Planned { id, entry, predecessor, table, mut slots, range } = match planned {
            Ok(planned) => planned,
            Err(error) => {
                drop_aside(prepared);
                return Err(error);
            }
        };
        self.next_id = id;
        let slot = self.slot_of(prepared.place);
        slots.splice(range, [slot]);
        self.follow(Routes { table, slots });
        self.messages.add_context(slot);
        self.mpqs.add_owner(slot.0);
        self.scheduler.add(slot.0, prepared.run.weight);
        self.timeouts += u32::from(prepared.run.message_timeout_us.is_some());
        let context = Context { predecessor, ..link(prepared, entry, self.clusters.start, &self.news) };
        self.contexts[slot.0 as usize] = Some(context);
        self.share_buffer();
        Ok(id)
    }

    /// What is to change when a context is linked in, if it may be.
    fn plan_link(&self, prepared: &Prepared, limits: &Limits) -> Result<Planned, InstallError> {
        // Those that were replaced and are not gone yet count too.
        if self.contexts.iter().flatten().count() >= limits.contexts {
            return Err(InstallError::Full(limits.contexts));
        }
        let id = prepared.place.map_or(self.next_id + 1, |place| place.id);
        let entry = TableEntry {
            context: id,
            rules: prepared.matching.rules.clone(),
            eom: prepared.matching.eom.clone(),
            key: prepared.key.clone(),
        };
        let replaced = prepared.install.replaces;
        let predecessor = replaced.map(|old| self.find(old, User(prepared.uid))).transpose()?;
        let (mut entries, slots) = (self.entries(), self.routes.slots.clone());
        let place = slots.iter().position(|&slot| Some(slot) == predecessor);
        let range = place.map_or(entries.len()..entries.len(), |place| place..place + 1);
        entries.splice(range.clone(), [entry.clone()]);
        let table = Table::new(&entries)?;
        Ok(Planned { id, entry, predecessor, table, slots, range })
    }

    /// Lets the context go that a context replaces, with its last message: all frames that are not of its open messages go
    /// elsewhere from here on.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn retire_replaced(&mut self, id: u32) -> Result<(), InstallError> {
        let slot = self.find(id, User(0))?;
        let predecessor = context(&mut self.contexts, slot).predecessor;
        if let Some(old) = predecessor {
            let to_come = self.arrivals.as_ref().map_or(0, |arrivals| arrivals.len()) + self.kept_back();
            let old = context(&mut self.contexts, old);
            old.retired = true;
            old.matched_until = self.taken_in + to_come as u64;
            self.timeouts += u32::from(old.message_timeout.is_none());
            old.message_timeout = Some(old.message_timeout.map_or(REPLACED, |timeout| timeout.min(REPLACED)));
            self.retired += 1;
        }
        Ok(())
    }

    /// Takes a context out again that the NIC does not know, and puts the one in its place that it was to replace.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn undo_link(&mut self, id: u32) -> Result<(), InstallError> {
        let slot = self.find(id, User(0))?;
        let predecessor = context(&mut self.contexts, slot).predecessor;
        let place = self.routes.slots.iter().position(|&other| other == slot);
        drop_aside(self.unlink(id, User(0))?);
        if let (Some(old), Some(place)) = (predecessor, place) {
            self.routes.slots.insert(place, old);
            let slots = self.routes.slots.clone();
            self.follow(Routes { table: Table::new(&self.entries())?, slots });
            self.share_buffer();
        }
        Ok(())
    }

    /// Lets contexts go that were replaced and have no message any more.
    #[cold]
    pub(crate) fn end_drained(&mut self) {
        for index in 0..self.contexts.len() {
            let slot = Slot(u32::try_from(index).unwrap_or(u32::MAX));
            let matches_none = |context: &Context| context.retired && self.taken_in >= context.matched_until;
            if self.contexts[index].as_ref().is_some_and(matches_none) && self.messages.held(slot) == 0 {
                self.retired -= 1;
                drop_aside(self.clear(slot));
            }
        }
    }

    /// Shares the packet buffer out between contexts, by weight. Batches are taken as they arrived where that may matter: what is kept
    /// back of a batch for a context that waits may become other contexts' packets, and what a handler leaves to the kernel should
    /// be in the order of its connection, whatever the key.
    fn share_buffer(&mut self) {
        let unordered = |context: &Context| context.run.full != Full::Wait && !context.run.verdicts;
        self.in_groups = self.clusters.len() > 1 && self.contexts.iter().flatten().all(unordered);
        let weights = self.installed().map(|context| u64::from(context.run.weight)).sum();
        for context in self.contexts.iter_mut().flatten() {
            context.share = Share::new(self.hers, context.run.weight, weights, context.run.full);
        }
    }

    /// Frames go where `routes` lead from here on: those too that this thread has matched and not queued.
    fn follow(&mut self, routes: Routes) {
        self.routes = routes;
        if self.arrivals.is_none() {
            self.inbound.find(&self.routes);
        }
    }

    /// Where frames of all contexts go.
    #[must_use]
    pub fn routes(&self) -> Routes {
        self.routes.clone()
    }

    /// Has the NIC hand over the frames that have somewhere to go.
    fn steer(&self, routes: &Routes) -> Result<(), InstallError> {
        Ok(self.nic.steering().set_rules(routes.table.tests())?)
    }

    /// Removes a context: for an engine that has the NIC to itself.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`]; nothing has changed then.
    pub fn remove(&mut self, id: u32, user: User) -> Result<(), InstallError> {
        self.may_remove(id, user)?;
        if let Err(error) = self.steer(&self.routes_without(&[id])?) {
            warn_of_rules(&error);
        }
        self.unlink(id, user)?;
        Ok(())
    }

    /// Unlinks a context. What its messages still hold is dropped and counted. Returns the context if it was there: giving its
    /// memory back takes time that this thread may not have.
    ///
    /// # Errors
    /// As [`Engine::remove`].
    pub fn unlink(&mut self, id: u32, user: User) -> Result<Option<Box<Context>>, InstallError> {
        let slot = self.find(id, user)?;
        self.follow(self.routes_without(&[id])?);
        Ok(self.clear(slot))
    }

    /// Drops what a context's messages still hold, and frees its slot.
    fn clear(&mut self, slot: Slot) -> Option<Box<Context>> {
        self.drop_arrivals(slot);
        self.abandon_parked(slot);
        let held: Vec<_> = self.messages.of_context(slot).collect();
        for mpq in held {
            let (nic, counts) = (&mut self.nic, &mut self.counts);
            self.mpqs.reset(mpq, |packet| {
                counts.add(Counter::DropRemoved, 1);
                nic.recycle(packet.frame);
            });
            self.messages.release(mpq);
        }
        self.mpqs.forget(slot.0);
        let gone = self.contexts[slot.0 as usize].take();
        if let Some(context) = &gone {
            self.counts.merge(&context.counts);
            self.timeouts -= u32::from(context.message_timeout.is_some());
            let replaced = context.predecessor;
            let mut others = self.contexts.iter_mut().flatten();
            if let Some(successor) = others.find(|other| other.predecessor == Some(slot)) {
                successor.predecessor = replaced;
            }
        }
        self.share_buffer();
        gone.map(Box::new)
    }

    /// Drops arrivals that were matched and not queued.
    fn drop_arrivals(&mut self, slot: Slot) {
        let mut handed = Vec::new();
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.take(arrivals.len(), |arrival| handed.push(arrival));
        }
        let gone = self.inbound.weed(handed, |of| of == slot);
        let waiting = self.waiting.take_if(|arrival| arrival.slot == slot);
        for frame in waiting.map(|arrival| arrival.frame).into_iter().chain(gone) {
            self.taken_in += 1;
            self.counts.add(Counter::DropRemoved, 1);
            self.nic.recycle(frame);
        }
    }

    /// Has a context take other packets than before, and returns which those were. The NIC does not know yet: see
    /// [`spin_nic::Queue::steering`].
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::Table`]; nothing has changed then.
    pub fn set_rules(&mut self, id: u32, user: User, matching: Matching) -> Result<Matching, InstallError> {
        let slot = self.find(id, user)?;
        let mut entries = self.entries();
        let Some(entry) = entries.iter_mut().find(|entry| entry.context == id) else {
            return Err(InstallError::NoSuchContext(id));
        };
        let Matching { rules, eom } = matching;
        let before = std::mem::replace(entry, TableEntry { context: id, rules, eom, key: entry.key.clone() });
        let entry = entry.clone();
        self.follow(Routes { table: Table::new(&entries)?, slots: self.routes.slots.clone() });
        let context = context(&mut self.contexts, slot);
        context.texts = texts(&entry);
        context.entry = entry;
        Ok(Matching { rules: before.rules, eom: before.eom })
    }

    /// Tells at which address the application mapped a context's host memory.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`].
    pub fn map_host(&mut self, id: u32, user: User, address: u64) -> Result<(), InstallError> {
        let slot = self.find(id, user)?;
        let context = self.contexts[slot.0 as usize].as_mut().filter(|context| context.host.is_some());
        let context = context.ok_or(InstallError::NoHostMemory(id))?;
        if let Some(host) = &mut context.host {
            host.address = address;
        }
        context.describe_host();
        Ok(())
    }

    /// A context's descriptor.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`].
    pub fn descriptor(&self, id: u32, user: User) -> Result<Arc<Region>, InstallError> {
        let slot = self.find(id, user)?;
        let context = self.contexts[slot.0 as usize].as_ref().ok_or(InstallError::NoSuchContext(id))?;
        Ok(context.descriptor.region().clone())
    }

    /// A context's host memory and the address handlers know it by.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::NoHostMemory`].
    pub fn host_memory(&self, id: u32, user: User) -> Result<(Arc<Region>, u64), InstallError> {
        let slot = self.find(id, user)?;
        let host = self.contexts[slot.0 as usize].as_ref().and_then(|context| context.host.as_ref());
        let host = host.ok_or(InstallError::NoHostMemory(id))?;
        Ok((host.region.clone(), host.address))
    }

    /// Contexts in order of priority.
    #[must_use]
    pub fn context_infos(&self) -> Vec<ContextInfo> {
        self.installed().map(info).collect()
    }

    fn installed(&self) -> impl Iterator<Item = &Context> {
        self.routes.slots.iter().filter_map(|slot| self.contexts[slot.0 as usize].as_ref())
    }

    fn entries(&self) -> Vec<TableEntry> {
        self.installed().map(|context| context.entry.clone()).collect()
    }

    /// Whether a user may remove a context.
    ///
    /// # Errors
    /// As [`Engine::remove`].
    pub fn may_remove(&self, id: u32, user: User) -> Result<(), InstallError> {
        self.find(id, user).map(|_| ())
    }

    /// Where frames go without contexts that are about to be [unlinked](Engine::unlink).
    ///
    /// # Errors
    /// Never, as long as all contexts' rules fit a table.
    pub fn routes_without(&self, leaving: &[u32]) -> Result<Routes, InstallError> {
        let stays = |(entry, _): &(TableEntry, Slot)| !leaving.contains(&entry.context);
        let (entries, slots): (Vec<_>, _) =
            self.entries().into_iter().zip(self.routes.slots.iter().copied()).filter(stays).unzip();
        Ok(Routes { table: Table::new(&entries)?, slots })
    }

    fn find(&self, id: u32, user: User) -> Result<Slot, InstallError> {
        let found = self.routes.slots.iter().zip(self.installed()).find(|(_, context)| context.id == id);
        let (&slot, context) = found.ok_or(InstallError::NoSuchContext(id))?;
        if user.may_change(context) { Ok(slot) } else { Err(InstallError::NotYours { id, owner: context.uid }) }
    }

    /// The slot for a context that is to have this place, or the first free one.
    fn slot_of(&mut self, place: Option<Place>) -> Slot {
        let free = || self.contexts.iter().position(Option::is_none).unwrap_or(self.contexts.len());
        let index = place.map_or_else(free, |place| place.slot.0 as usize);
        self.contexts.resize_with(self.contexts.len().max(index + 1), || None);
        #[allow(clippy::cast_possible_truncation, reason = "bounded by limits.contexts and the table's tests")]
        Slot(index as u32)
    }

    /// Slots that contexts have, those too that were replaced and still have messages.
    #[must_use]
    pub fn slots_taken(&self) -> Vec<bool> {
        self.contexts.iter().map(Option::is_some).collect()
    }
}

/// The NIC goes on handing over frames of contexts that are removed. They match nothing here any more and are counted as dropped,
/// until the next change of rules.
pub fn warn_of_rules(error: &InstallError) {
    tracing::warn!("the NIC keeps the rules of contexts that are removed: {error}");
}

fn link(prepared: Prepared, entry: TableEntry, cluster: u32, news: &News) -> Context {
    let handlers = prepared.image.entries.handlers;
    let Install { name, l1_bytes, .. } = prepared.install;
    let patience = Duration::from_micros(prepared.run.doorbell_us.unwrap_or(0));
    let mut context = Context {
        id: entry.context,
        name,
        uid: prepared.uid,
        texts: texts(&entry),
        entry,
        image: prepared.image,
        translation: prepared.translation,
        options: prepared.options,
        handlers,
        hpus: prepared.hpus,
        host: prepared.host.map(|region| HostMemory { region, address: HOST_ADDRESS }),
        l1_bytes: l1_bytes.unwrap_or(PACKET_WINDOW) as usize,
        limits: prepared.limits,
        message_timeout: prepared.run.message_timeout_us.map(Duration::from_micros),
        // Set when it is one of several.
        share: Share { hers: 0, unquestioned: 0 },
        run: prepared.run,
        counts: Counts::default(),
        predecessor: None,
        retired: false,
        matched_until: 0,
        descriptor: Descriptor::new(prepared.descriptor, cluster, patience, news),
        faults: VecDeque::new(),
        lines_left: LINES_PRINTED,
    };
    context.describe_host();
    context
}

fn texts(entry: &TableEntry) -> Texts {
    Texts {
        rules: entry.rules.rules.iter().map(ToString::to_string).collect(),
        eom: entry.eom.to_string(),
        key: entry.key.to_string(),
    }
}

fn info(context: &Context) -> ContextInfo {
    ContextInfo {
        context: context.id,
        name: context.name.clone(),
        uid: context.uid,
        rules: context.texts.rules.clone(),
        eom: context.texts.eom.clone(),
        key: context.texts.key.clone(),
        handlers: context.handlers.map(|handler| handler.is_some()),
        host_mem: context.host.as_ref().map_or(0, |host| host.region.len()),
        run: context.run_info(),
        counters: context.counts.named().filter(|(_, value)| *value > 0).collect(),
        faults: context.faults.iter().cloned().collect(),
    }
}
