//! What all functions share: errors, panics, sessions, and arguments that are pointers.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::layout::{Ctx, NUM_RULESETS, Ruleset};
use crate::session::{Session, SessionError};
use crate::slmp::SlmpError;

/// Why a function did nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0} is NULL")]
    Null(&'static str),
    #[error("{0} is negative")]
    Negative(&'static str),
    #[error("{0} rulesets: between 1 and {NUM_RULESETS}")]
    Count(c_int),
    #[error("the context was not made by fpspin_init, or fpspin_exit has ended it")]
    NoContext,
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Slmp(#[from] SlmpError),
}

/// Does the work of a function, and says why if it is not done. Panics end here.
pub(super) fn guarded<T>(function: &str, otherwise: T, work: impl FnOnce() -> Result<T, Error>) -> T {
    // Nothing of what the work has touched is looked at after a panic without its lock's say.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => {
            say(function, &error);
            otherwise
        }
        Err(_) => {
            say(function, &"internal error");
            otherwise
        }
    }
}

fn say(function: &str, what: &dyn Display) {
    use std::io::Write;
    // Whoever closed standard error does not want to know.
    let _ = writeln!(std::io::stderr(), "{function}: {what}");
}

/// Sessions by their descriptors, which contexts have.
pub(super) fn sessions() -> MutexGuard<'static, BTreeMap<c_int, Arc<Session>>> {
    static SESSIONS: Mutex<BTreeMap<c_int, Arc<Session>>> = Mutex::new(BTreeMap::new());
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The session of a context.
///
/// # Safety
/// `ctx` is null or points to a context that nobody changes meanwhile.
pub(super) unsafe fn session(ctx: *const Ctx) -> Result<Arc<Session>, Error> {
    if ctx.is_null() {
        return Err(Error::Null("ctx"));
    }
    // SAFETY: not null, so the caller's promise.
    let fd = unsafe { (*ctx).fd };
    sessions().get(&fd).cloned().ok_or(Error::NoContext)
}

/// # Safety
/// `text` is null or a string.
pub(super) unsafe fn path(name: &'static str, text: *const c_char) -> Result<PathBuf, Error> {
    if text.is_null() {
        return Err(Error::Null(name));
    }
    // SAFETY: not null, so the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())).to_path_buf())
}

/// # Safety
/// `rs` is null or points to `count` rulesets.
pub(super) unsafe fn rulesets(rs: *const Ruleset, count: c_int) -> Result<Vec<Ruleset>, Error> {
    if rs.is_null() {
        return Err(Error::Null("rs"));
    }
    let len = usize::try_from(count).ok().filter(|len| (1..=NUM_RULESETS).contains(len)).ok_or(Error::Count(count))?;
    // SAFETY: not null, so the caller's promise; all bit patterns are rulesets.
    Ok(unsafe { slice::from_raw_parts(rs, len) }.to_vec())
}

/// The bytes of a buffer; null is one of no bytes.
///
/// # Safety
/// `data` is null or points to `size` bytes that nobody changes as long as these are looked at.
pub(super) unsafe fn bytes<'b>(name: &'static str, data: *const c_void, size: usize) -> Result<&'b [u8], Error> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::Null(name)),
        // A slice cannot be longer, and no buffer is.
        (false, size) if isize::try_from(size).is_err() => Err(SessionError::Long(size).into()),
        // SAFETY: neither null nor too long, so the caller's promise.
        (false, _) => Ok(unsafe { slice::from_raw_parts(data.cast(), size) }),
    }
}
