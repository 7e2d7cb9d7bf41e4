//! Counters by name.

use std::ffi::{c_char, c_int};

use libspin::{ContextInfo, Counter, Counters};

use crate::call::{Out, free, guarded, shared, text};
use crate::client::{Connection, locked};
use crate::status::Error;

/// Values of all counters at one time.
pub struct Stats(libspin::Stats);

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `stats` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_stats_read(client: *const Connection, stats: *mut *mut Stats) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Out::handle("stats", stats)? };
        // SAFETY: guaranteed by the caller.
        out.give(Stats(unsafe { locked(client)? }.stats()?));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `stats` is null, or a handle of [`spin_stats_read`] that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_stats_free(stats: *mut Stats) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(stats) };
}

/// See `spin_client.h`.
///
/// # Safety
/// `stats` is null or a valid handle; `name` is null or a string; `value` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_stats_engine(stats: *const Stats, name: *const c_char, value: *mut u64) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { look_up(stats, name, value, |stats, name| listed(&stats.engine, name)) }
}

/// See `spin_client.h`.
///
/// # Safety
/// As for [`spin_stats_engine`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_stats_nic(stats: *const Stats, name: *const c_char, value: *mut u64) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { look_up(stats, name, value, |stats, name| listed(&stats.nic_counters, name)) }
}

/// See `spin_client.h`.
///
/// # Safety
/// As for [`spin_stats_engine`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_stats_context(
    stats: *const Stats,
    context: u32,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    let find = |stats: &libspin::Stats, name: &str| {
        let info = stats.contexts.iter().find(|info| info.context == context);
        of_context(info.ok_or_else(|| Error::NotFound(format!("context {context}")))?, name)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { look_up(stats, name, value, find) }
}

/// # Safety
/// As for [`spin_stats_engine`].
unsafe fn look_up(
    stats: *const Stats,
    name: *const c_char,
    value: *mut u64,
    find: impl Fn(&libspin::Stats, &str) -> Result<u64, Error>,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller; statistics do not change.
        let (stats, name) = unsafe { (shared("stats", stats)?, text("name", name)?) };
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Out::new("value", value)? };
        out.set(find(&stats.0, name)?);
        Ok(())
    })
}

fn listed(counters: &Counters, name: &str) -> Result<u64, Error> {
    counters.named(name).ok_or_else(|| Error::NotFound(format!("counter {name:?}")))
}

/// Returns a counter of a context. spind does not list zeros, nor all counters of other users' contexts.
fn of_context(info: &ContextInfo, name: &str) -> Result<u64, Error> {
    let is_shown = Counter::ALL.iter().any(|counter| counter.name() == name && info.shows(*counter));
    listed(&info.counters, name).or_else(|error| if is_shown { Ok(0) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::{ContextInfo, Counter, of_context};

    #[test]
    fn a_counter_that_is_hidden_is_not_zero() {
        let counters = [(Counter::DropShare.name().to_owned(), 7)].into_iter().collect();
        let own = ContextInfo { counters, ..ContextInfo::default() };
        let hidden = ContextInfo { hidden: true, ..own.clone() };
        let killed = Counter::MessagesKilled.name();
        for info in [&own, &hidden] {
            assert_eq!(of_context(info, Counter::DropShare.name()).expect("shown"), 7);
            assert_eq!(of_context(info, killed).expect("shown"), 0);
            assert!(of_context(info, "no_counter").is_err());
        }
        let other = Counter::ALL.iter().map(|counter| counter.name());
        let unseen: Vec<_> = other.filter(|name| of_context(&hidden, name).is_err()).collect();
        assert_eq!(unseen.len(), Counter::COUNT - 6);
        assert!(unseen.iter().all(|name| of_context(&own, name).is_ok_and(|value| value == 0)));
    }
}
