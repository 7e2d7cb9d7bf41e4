//! Checks an application's request, and makes the context off the packet path: [`Prepared::new`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hpu_vm::Image;
use hpu_vm::jit::{self, Atomics, Options, Translation, Untranslated};
use spin_abi::control::{Abi, Compat, Engine as Kinds, Install, Placement, RunInfo};
use spin_abi::map::{Machine, PACKET_WINDOW};
use spin_matcher::KeySpec;

use super::in_hook::{self, Placed};
use super::limits::run_info;
use super::memory::{charge_translation, host_memory};
use super::{abi_check, tier, units};
use crate::context::event_ring::EventRing;
use crate::context::header_rule::HeaderRule;
use crate::context::image_error::ImageError;
use crate::context::loader::Loader;
use crate::context::{Interpreted, Program};
use crate::control::policy::grant::Grant;
use crate::install::error::MAX_NAME;
use crate::install::match_spec::check_length;
use crate::install::{InstallError, MatchSpec, Prepared};
use crate::settings::Limits;
use spin_pspin::hpu::entries::Entries;
use spin_pspin::hpu::image::LoadedImage;
use spin_pspin::hpu::memory::saturate;

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
        check(&install, loader)?;
        let wanted = tier::decide(install.tier, loader.kernel_tier, grant);
        let (match_spec, narrowed) = granted_match(&install.rules, install.eom.as_deref(), grant)?;
        let key = key(&install, loader.compat)?;
        let header = install.header.as_deref().map(|text| HeaderRule::parse(text, install.early)).transpose()?;
        let run = run_info(&install, limits, loader)?;
        let image = loader.load(file, uid)?;
        abi_check::check(&image.image, &install)?;
        let entries = entries(&install, &image)?;
        match_spec.check_handlers(&entries.handlers, header.is_some())?;
        let host = host_memory(&install, uid, limits, loader)?;
        let request =
            in_hook::Request { install: &install, run: &run, rules: &match_spec, entries: &entries, file, uid };
        let (tier, in_hook) = tier::settle(install.tier, request.enter(wanted, loader, &image.image))?;
        let Placed { image, memory, hook, mut charges } = match in_hook {
            Some(in_hook) => in_hook,
            None => Placed::in_user_space(&request, loader, image)?,
        };
        let (image, units) = units::memories(&request, loader, (image, memory), &mut charges)?;
        let options = options(&run, image.any_device.load(Relaxed));
        let translation = translate(loader, &image, &entries, &run, options, &install.name);
        charges.extend(charge_translation(loader, uid, translation.as_ref().ok())?);
        let notes = tier.as_ref().and_then(tier::note).into_iter().chain(interpreted(&translation, &image.image));
        let warnings = match_spec.never_holding().chain(narrowed).chain(notes).collect();
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
            install: install.into(),
            uid,
            user_weight: grant.weight(),
            program,
            event_ring: EventRing::create(loader.machine.clusters * saturate(units.len() as u64))?,
            units,
            assigned: None,
            match_spec: match_spec.into(),
            key,
            header,
            host,
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

/// Checks the texts of a request, and that its handlers can address all clusters, and run in its units.
fn check(install: &Install, loader: &Loader) -> Result<(), InstallError> {
    check_clusters(install.abi, loader.machine.clusters)?;
    units::count(install, loader)?;
    let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if install.name.len() > MAX_NAME || !install.name.bytes().all(printable) {
        return Err(InstallError::Name(install.name.chars().take(MAX_NAME).collect()));
    }
    check_length(
        install.rules.iter().chain(&install.eom).chain(&install.key).chain(&install.header).map(String::as_str),
    )
}

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

const fn options(run: &RunInfo, any_device: bool) -> Options {
    Options {
        checks: units::checks(run),
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
fn interpreted(translation: &Result<Arc<Translation>, Interpreted>, image: &Image) -> Option<String> {
    match translation {
        Ok(translation) => partly_interpreted(translation, image),
        Err(why) => Some(format!("its handlers are interpreted: {why}")),
    }
}

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
