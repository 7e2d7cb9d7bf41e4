//! Checks an application's request, and makes the context off the packet path: [`Prepared::new`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hpu_vm::Image;
use hpu_vm::jit::{self, Atomics, Options, Translation, Untranslated};
use hpu_vm::memory::{Region as Memory, SpaceError};
use spin_abi::control::{Abi, BillKind, Checks, Compat, Engine as Kinds, Install, Placement, RunInfo};
use spin_abi::map::{Machine, PACKET_WINDOW, PAGE};
use spin_matcher::KeySpec;
use spin_shm::Region;

use super::in_hook::{self, Placed};
use super::{abi_check, tier};
use crate::context::event_ring::EventRing;
use crate::context::header_rule::HeaderRule;
use crate::context::image_error::ImageError;
use crate::context::loader::Loader;
use crate::context::{Interpreted, Program};
use crate::control::policy::grant::Grant;
use crate::install::error::MAX_NAME;
use crate::install::ledger::Charge;
use crate::install::match_spec::check_length;
use crate::install::{InstallError, MatchSpec, Prepared};
use crate::sched::scheduler::MOST_WEIGHT;
use crate::settings::Limits;
use crate::telemetry::context_latency::ContextLatencies;
use spin_pspin::hpu::entries::Entries;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::{ContextMemory, ContextSizes, saturate};
use spin_pspin::hpu::shadow::{ShadowInterpreter, ShadowMemory};
use spin_pspin::hpu::{Hpu, Hpus};

/// Bytes of a view of guest memory: page tables, and descriptions of its mappings. Measured: 22 to 28 KiB.
const VIEW_BYTES: u64 = 24 << 10;

impl Prepared {
    /// Checks the request of the administrator `uid`, and translates the image.
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
        Self::for_user(install, file, &Grant::Administrator { uid }, loader, limits)
    }

    /// Checks the request of a user, narrows its rules to what the user may match, and translates the image.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn for_user(
        install: Install,
        file: &[u8],
        grant: &Grant,
        loader: &Loader,
        limits: &Limits,
    ) -> Result<Self, InstallError> {
        let uid = grant.uid();
        check_texts(&install)?;
        let wanted = tier::decide(install.tier, loader.kernel_tier, grant);
        let (match_spec, narrowed) = granted_match(&install.rules, install.eom.as_deref(), grant)?;
        let key = key(&install, loader.compat)?;
        let header = install.header.as_deref().map(|text| HeaderRule::parse(text, install.early)).transpose()?;
        let run = run_info(&install, limits, loader)?;
        check_clusters(install.abi, loader.machine.clusters)?;
        let image = loader.load(file, uid)?;
        abi_check::check(&image.image, &install)?;
        let entries = entries(&install, &image)?;
        match_spec.check_handlers(&entries.handlers, header.is_some())?;
        let request =
            in_hook::Request { install: &install, run: &run, rules: &match_spec, entries: &entries, file, uid };
        let (tier, in_hook) = tier::settle(install.tier, request.enter(wanted, loader, &image.image))?;
        let Placed { image, memory, hook, charge } = match in_hook {
            Some(in_hook) => in_hook,
            None => Placed::in_user_space(&request, loader, image)?,
        };
        let mut charges = vec![charge_image(loader, uid, &image, file)?, charge_memory(loader, uid, &memory)?];
        charges.extend(charge);
        let hpus = hpus(&loader.machine, &image, &memory, &run)?;
        let host = host_memory(&install, uid, limits, loader)?;
        let event_ring = EventRing::create(loader.machine.clusters)?;
        let options = options(&run, image.any_device.load(Relaxed));
        let translation = translate(loader, &image, &entries, &run, options, &install.name);
        charges.extend(charge_translation(loader, uid, translation.as_ref().ok())?);
        let interpreted = match &translation {
            Ok(translation) => partly_interpreted(translation, &image.image),
            Err(why) => Some(format!("its handlers are interpreted: {why}")),
        };
        let warnings = match_spec.never_holding().chain(narrowed).chain(interpreted).collect();
        let program = Program {
            translation,
            options,
            handlers: entries.handlers,
            l1_bytes: install.l1_bytes.unwrap_or(PACKET_WINDOW) as usize,
            limits: jit::Limits { time: Some(run.watchdog_us), instructions: run.instruction_limit },
            charges: charges.into(),
            hook,
            image,
        };
        Ok(Self {
            handle: None,
            install,
            uid,
            user_weight: grant.weight(),
            program,
            hpus,
            memory,
            match_spec,
            key,
            header,
            host,
            event_ring,
            run,
            tier,
            warnings,
        })
    }
}

/// Rules and end of message of a request, narrowed to what its user may match; and warnings.
///
/// # Errors
/// The errors of [`MatchSpec::parse`], and [`InstallError::Policy`].
pub fn granted_match(
    rules: &[String],
    eom: Option<&str>,
    grant: &Grant,
) -> Result<(MatchSpec, Vec<String>), InstallError> {
    let admitted = grant.admit(MatchSpec::parse(rules, eom)?);
    let (spec, warnings) = admitted.map_err(|refusal| InstallError::Policy(refusal.into()))?;
    spec.check_size()?;
    Ok((spec, warnings))
}

/// Requested message key, or the default of the machine that the context is compatible with.
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
    check_length(
        install.rules.iter().chain(&install.eom).chain(&install.key).chain(&install.header).map(String::as_str),
    )
}

/// Checks that handlers of an ABI can address all clusters.
const fn check_clusters(abi: Abi, clusters: u32) -> Result<(), InstallError> {
    let known = if matches!(abi, Abi::Fpspin) { Machine::FPSPIN.clusters } else { Machine::MAX_CLUSTERS };
    if clusters > known { Err(InstallError::Clusters { abi, known, clusters }) } else { Ok(()) }
}

/// The handlers that the application or the image named.
fn entries(install: &Install, LoadedImage { image, entries, .. }: &LoadedImage) -> Result<Entries, ImageError> {
    let entries = match &install.handlers {
        Some(names) => entries.named(image, names)?,
        None => *entries,
    };
    entries.check(image)?;
    Ok(entries)
}

/// A context's own memory, in a region that `make` makes.
///
/// # Errors
/// [`InstallError::TooLarge`], and the errors of `make`.
pub(super) fn context_memory<E: From<InstallError>>(
    install: &Install,
    hpus: u32,
    (image, entries): (&Image, &Entries),
    machine: &Machine,
    make: impl FnOnce(usize) -> Result<Arc<Memory>, E>,
) -> Result<ContextMemory, E> {
    let base = image.handler_mem_end();
    let end = machine.handler_mem_base + machine.handler_mem_size;
    at_most("handler memory", install.handler_mem, end.saturating_sub(base), None)?;
    at_most("scratchpad", install.scratchpad, machine.scratchpad_size(), None)?;
    let sizes = ContextSizes { hpus, handler: install.handler_mem, scratchpad: install.scratchpad };
    let memory = ContextMemory::new_in(machine, base, sizes, make)?;
    Ok(match entries.handler_mem {
        Some(address) => memory.with_handler_memory(address, image.handler_mem_from(address).unwrap_or(0)),
        None => memory,
    })
}

/// A context's HPUs on all clusters.
fn hpus(machine: &Machine, image: &LoadedImage, memory: &ContextMemory, run: &RunInfo) -> Result<Hpus, SpaceError> {
    let (checks, placement) = (checks(run), run.placement);
    let twins = match run.engine {
        Kinds::Check => Some(Arc::new(ShadowMemory::new(&image.memory, memory)?)),
        Kinds::Interp | Kinds::Jit => None,
    };
    let hpu = |own| {
        let mut hpu = Hpu::new(machine, own, &image.memory, memory, placement, checks)?;
        if let Some(twins) = &twins {
            hpu.set_shadow(ShadowInterpreter::new(machine, own, twins.clone(), placement, checks)?);
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
        described: true,
    }
}

/// A warning about functions that are interpreted.
fn partly_interpreted(translation: &Translation, image: &Image) -> Option<String> {
    let untranslated = translation.untranslated();
    let first = untranslated.first()?;
    let name = image.symbolize(first.address).map_or_else(String::new, |(name, _)| format!(" ({name})"));
    let (count, Untranslated { address, reason }) = (untranslated.len(), first);
    Some(format!("{count} functions are interpreted, the first at {address:#010x}{name}: {reason}"))
}

/// Machine code of the image, or the reason why it is interpreted.
fn translate(
    loader: &Loader,
    image: &LoadedImage,
    entries: &Entries,
    run: &RunInfo,
    options: Options,
    name: &str,
) -> Result<Arc<Translation>, Interpreted> {
    if run.engine == Kinds::Interp {
        return Err("spind runs with --engine interp".into());
    }
    let translation = loader.translate(image, &entries.handlers, options, name);
    translation
        .inspect_err(|error| tracing::warn!("context {name:?} is interpreted: {error}"))
        .map_err(|error| error.to_string().into())
}

/// Checks a size. `setting`: the limit's name in the daemon's configuration.
///
/// # Errors
/// [`InstallError::TooLarge`].
pub fn at_most(
    what: &'static str,
    asked: impl Into<u64>,
    limit: impl Into<u64>,
    setting: Option<&str>,
) -> Result<(), InstallError> {
    let (asked, limit) = (asked.into(), limit.into());
    if asked <= limit {
        return Ok(());
    }
    let more = |name| format!("; for more, add `{name} = {asked}` to [limits] in spind's configuration");
    Err(InstallError::TooLarge { what, asked, limit, setting: setting.map(more).unwrap_or_default() })
}

fn run_info(install: &Install, limits: &Limits, loader: &Loader) -> Result<RunInfo, InstallError> {
    let watchdog_us = limit(
        "time limit in microseconds",
        install.watchdog_us,
        limits.watchdog_us,
        " (limits.watchdog_us of spind's configuration)",
    )?;
    let most = limits.instruction_limit;
    let instruction_limit = match install.instruction_limit {
        None => most,
        asked => Some(limit(
            "instruction limit",
            asked,
            most.unwrap_or(u64::MAX),
            " (limits.instruction_limit of spind's configuration)",
        )?),
    };
    let weight = limit("weight", Some(install.weight.unwrap_or(1).into()), MOST_WEIGHT.into(), "")?;
    let hpus = limit("HPUs", Some(install.hpus.unwrap_or(1).into()), loader.machine.hpus_per_cluster.into(), "")?;
    let Install { abi, checks, isolation, placement, message_timeout_us, doorbell_us, full, verdicts, .. } = *install;
    if message_timeout_us.is_some() {
        limit("message timeout in microseconds", message_timeout_us, u64::MAX, "")?;
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

/// Requested limit, or the daemon's.
fn limit(what: &'static str, asked: Option<u64>, limit: u64, setting: &'static str) -> Result<u64, InstallError> {
    match asked {
        None => Ok(limit),
        Some(asked) if (1..=limit).contains(&asked) => Ok(asked),
        Some(asked) => Err(InstallError::Limit { what, setting, asked, limit }),
    }
}

fn host_memory(
    install: &Install,
    uid: u32,
    limits: &Limits,
    loader: &Loader,
) -> Result<Option<Arc<Region>>, InstallError> {
    at_most("host memory", install.host_mem, limits.host_mem, Some("host_mem"))?;
    if install.host_mem == 0 {
        return Ok(None);
    }
    let bytes = install.host_mem.next_multiple_of(PAGE.into());
    // The user pays until nobody has the region, which may be long after the context is gone.
    let charge = loader.ledger.charge(uid, BillKind::HostMemory, bytes)?;
    Ok(Some(Arc::new(Region::create_with(install.host_mem, Box::new(charge))?)))
}

fn charge_translation(
    loader: &Loader,
    uid: u32,
    translation: Option<&Arc<Translation>>,
) -> Result<Option<Arc<Charge>>, InstallError> {
    let charge = |translation: &Arc<Translation>| {
        let bytes = translation.size().bytes as u64;
        loader.ledger.charge_shared(uid, BillKind::Translations, translation, bytes)
    };
    Ok(translation.map(charge).transpose()?)
}

/// Charges an image with its memory, its file's symbols and its decoded code: about as many bytes as the file for each.
fn charge_image(loader: &Loader, uid: u32, image: &Arc<LoadedImage>, file: &[u8]) -> Result<Arc<Charge>, InstallError> {
    let bytes = image.memory.region().len() as u64 + 2 * file.len() as u64;
    Ok(loader.ledger.charge_shared(uid, BillKind::Images, image, bytes)?)
}

/// Charges a context's own memory, event ring, views, and latencies on the greatest number of threads.
fn charge_memory(loader: &Loader, uid: u32, memory: &ContextMemory) -> Result<Arc<Charge>, InstallError> {
    let views = memory.hpus().count() as u64 * VIEW_BYTES;
    let latencies = u64::from(loader.machine.clusters) * size_of::<ContextLatencies>() as u64;
    let bytes = memory.region().len() as u64 + EventRing::bytes(loader.machine.clusters) + views + latencies;
    Ok(Arc::new(loader.ledger.charge(uid, BillKind::ContextMemory, bytes)?))
}
