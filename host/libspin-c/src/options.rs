//! Parameters of a context to install.

use std::ffi::{c_char, c_int};

use libspin::{HandlerNames, Install};

use crate::call::{Out, exclusive, free, guarded, optional_text, text};
use crate::status::Error;

/// Options of an installation.
pub struct Options(pub(crate) Install);

/// See `spin_client.h`.
///
/// # Safety
/// `options` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_options_new(options: *mut *mut Options) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { Out::handle("options", options)? }.give(Options(Install::default()));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `options` is null, or a handle of [`spin_options_new`] that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_options_free(options: *mut Options) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(options) };
}

/// Defines setters. `|install, value|` and an expression store a value of the given type.
macro_rules! setters {
    ($($function:ident($value:ident: $kind:ty) => |$install:ident| $store:expr;)*) => { $(
        /// See `spin_client.h`.
        ///
        /// # Safety
        /// `options` is null, or a valid handle that no other thread uses during the call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(options: *mut Options, $value: $kind) -> c_int {
            guarded(|| {
                // SAFETY: guaranteed by the caller.
                let $install = unsafe { &mut exclusive("options", options)?.0 };
                $store;
                Ok(())
            })
        }
    )* };
}

/// Defines setters of texts, with an expression that stores `&str`.
macro_rules! text_setters {
    ($($function:ident($value:ident) => |$install:ident| $store:expr;)*) => { $(
        /// See `spin_client.h`.
        ///
        /// # Safety
        /// `options` is null, or a valid handle that no other thread uses during the call; the text is null or a string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(options: *mut Options, $value: *const c_char) -> c_int {
            guarded(|| {
                // SAFETY: guaranteed by the caller.
                let $install = unsafe { &mut exclusive("options", options)?.0 };
                // SAFETY: guaranteed by the caller.
                let $value = unsafe { text(stringify!($value), $value)? };
                $store;
                Ok(())
            })
        }
    )* };
}

setters! {
    spin_options_set_host_memory(bytes: u64) => |install| install.host_mem = bytes;
    spin_options_set_handler_memory(bytes: u32) => |install| install.handler_mem = bytes;
    spin_options_set_scratchpad(bytes: u32) => |install| install.scratchpad = bytes;
    spin_options_set_l1_bytes(bytes: u32) => |install| install.l1_bytes = Some(bytes);
    spin_options_set_instruction_limit(limit: u64) => |install| install.instruction_limit = Some(limit);
    spin_options_set_watchdog_us(us: u64) => |install| install.watchdog_us = Some(us);
    spin_options_set_message_timeout_us(us: u64) => |install| install.message_timeout_us = Some(us);
    spin_options_set_doorbell_us(us: u64) => |install| install.doorbell_us = Some(us);
    spin_options_set_weight(weight: u32) => |install| install.weight = Some(weight);
    spin_options_set_hpus(hpus: u32) => |install| install.hpus = Some(hpus);
    spin_options_set_verdicts(on: c_int) => |install| install.verdicts = on != 0;
    spin_options_set_replaces(context: u32) => |install| install.replaces = Some(context);
    spin_options_set_unit(unit: u32) => |install| install.unit = Some(unit);
    spin_options_set_handler_memory_per_unit(on: c_int) => |install| install.handler_mem_per_unit = on != 0;
}

text_setters! {
    spin_options_set_name(name) => |install| install.name = name.to_owned();
    spin_options_add_rule(rule) => |install| install.rules.push(rule.to_owned());
    spin_options_set_eom(eom) => |install| install.eom = Some(eom.to_owned());
    spin_options_set_key(key) => |install| install.key = Some(key.to_owned());
    spin_options_set_header(rule) => |install| install.header = Some(rule.to_owned());
    spin_options_set_early(early) => |install| install.early = choice("early", early)?;
    spin_options_set_abi(abi) => |install| install.abi = choice("abi", abi)?;
    spin_options_set_checks(checks) => |install| install.checks = choice("checks", checks)?;
    spin_options_set_isolation(isolation) => |install| install.isolation = choice("isolation", isolation)?;
    spin_options_set_placement(placement) => |install| install.placement = choice("placement", placement)?;
    spin_options_set_tier(tier) => |install| install.tier = choice("tier", tier)?;
    spin_options_set_full(full) => |install| install.full = choice("full", full)?;
    spin_options_set_lifetime(lifetime) => |install| install.lifetime = choice("lifetime", lifetime)?;
    spin_options_set_units(units) => |install| install.units = Some(choice("units", units)?);
}

fn choice<T: std::str::FromStr<Err: ToString>>(name: &'static str, word: &str) -> Result<T, Error> {
    word.parse().map_err(|error: T::Err| Error::Value(name, format!("{word:?}: {}", error.to_string())))
}

/// See `spin_client.h`.
///
/// # Safety
/// `options` is null, or a valid handle that no other thread uses during the call; each name is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_options_set_handlers(
    options: *mut Options,
    header: *const c_char,
    payload: *const c_char,
    completion: *const c_char,
    memory: *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let install = unsafe { &mut exclusive("options", options)?.0 };
        // SAFETY: guaranteed by the caller.
        let handlers = unsafe {
            [
                optional_text("header", header)?,
                optional_text("payload", payload)?,
                optional_text("completion", completion)?,
            ]
        };
        // SAFETY: guaranteed by the caller.
        let handler_mem = unsafe { optional_text("memory", memory)? };
        install.handlers = Some(HandlerNames { handlers, handler_mem });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use libspin::{Abi, Checks, Early, Full, Isolation, Lifetime, Placement, Tier, UnitCount};
    use std::ptr::{null, null_mut};

    /// Options in which each field has a value of its own, none of them the default.
    fn expected() -> Install {
        Install {
            name: "a name".into(),
            rules: vec!["rule 1".into(), "rule 2".into()],
            eom: Some("eom".into()),
            key: Some("key".into()),
            header: Some("header".into()),
            early: Early::Drop,
            handlers: Some(HandlerNames {
                handlers: [None, Some("payload".into()), Some("completion".into())],
                handler_mem: Some("memory".into()),
            }),
            host_mem: 1 << 33,
            handler_mem: 2,
            scratchpad: 3,
            l1_bytes: Some(4),
            instruction_limit: Some(5 << 32),
            watchdog_us: Some(6 << 32),
            message_timeout_us: Some(7 << 32),
            doorbell_us: Some(8 << 32),
            abi: Abi::Pspin,
            checks: Checks::Exact,
            isolation: Isolation::Message,
            placement: Placement::Home,
            tier: Tier::Kernel,
            weight: Some(9),
            full: Full::Kill,
            hpus: Some(10),
            verdicts: true,
            replaces: Some(11),
            lifetime: Lifetime::Daemon,
            unit: Some(12),
            units: Some(UnitCount::ALL),
            handler_mem_per_unit: true,
        }
    }

    #[test]
    fn each_setter_has_its_field() {
        let mut options = null_mut();
        // SAFETY: all pointers are valid: a place for the handle, the handle, strings or null.
        let codes = unsafe {
            [
                spin_options_new(&raw mut options),
                spin_options_set_name(options, c"a name".as_ptr()),
                spin_options_add_rule(options, c"rule 1".as_ptr()),
                spin_options_add_rule(options, c"rule 2".as_ptr()),
                spin_options_set_eom(options, c"eom".as_ptr()),
                spin_options_set_key(options, c"key".as_ptr()),
                spin_options_set_header(options, c"header".as_ptr()),
                spin_options_set_early(options, c"drop".as_ptr()),
                spin_options_set_handlers(
                    options,
                    null(),
                    c"payload".as_ptr(),
                    c"completion".as_ptr(),
                    c"memory".as_ptr(),
                ),
                spin_options_set_host_memory(options, 1 << 33),
                spin_options_set_handler_memory(options, 2),
                spin_options_set_scratchpad(options, 3),
                spin_options_set_l1_bytes(options, 4),
                spin_options_set_instruction_limit(options, 5 << 32),
                spin_options_set_watchdog_us(options, 6 << 32),
                spin_options_set_message_timeout_us(options, 7 << 32),
                spin_options_set_doorbell_us(options, 8 << 32),
                spin_options_set_abi(options, c"pspin".as_ptr()),
                spin_options_set_checks(options, c"exact".as_ptr()),
                spin_options_set_isolation(options, c"message".as_ptr()),
                spin_options_set_placement(options, c"home".as_ptr()),
                spin_options_set_tier(options, c"kernel".as_ptr()),
                spin_options_set_weight(options, 9),
                spin_options_set_full(options, c"kill".as_ptr()),
                spin_options_set_hpus(options, 10),
                spin_options_set_verdicts(options, 1),
                spin_options_set_replaces(options, 11),
                spin_options_set_lifetime(options, c"daemon".as_ptr()),
                spin_options_set_unit(options, 12),
                spin_options_set_units(options, c"all".as_ptr()),
                spin_options_set_handler_memory_per_unit(options, 1),
            ]
        };
        assert!(codes.iter().all(|code| *code == 0), "{codes:?}");
        // SAFETY: the handle is valid, and nobody else has it.
        assert_eq!(unsafe { &*options }.0, expected());
        // SAFETY: the handle is not used again.
        unsafe { spin_options_free(options) };
    }
}
