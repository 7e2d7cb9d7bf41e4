//! Code shared by all exported functions: errors, panics, sessions and pointer arguments.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::layout::{Ctx, NUM_RULESETS, Ruleset};
use crate::session::{Session, SessionError};
use crate::slmp::SlmpError;

/// Reason why a function did nothing.
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
    #[error("this program has no context")]
    NoneYet,
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Slmp(#[from] SlmpError),
}

/// Runs the body of a function and prints its error to standard error. Panics are caught here.
pub(super) fn guarded<T>(function: &str, otherwise: T, work: impl FnOnce() -> Result<T, Error>) -> T {
    // After a panic, shared state is reached through its locks only.
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

/// Runs the body of a function as [`guarded`] does, and ends the process if it fails, as FPsPIN does.
pub(super) fn guarded_or_exit(function: &str, work: impl FnOnce() -> Result<(), Error>) {
    if !guarded(function, false, || work().map(|()| true)) {
        exit(1);
    }
}

pub(super) fn say(function: &str, what: &dyn Display) {
    use std::io::Write;
    // A failed write means that standard error is closed.
    let _ = writeln!(std::io::stderr(), "{function}: {what}");
}

/// The sessions of the process, in order of creation.
pub(super) fn sessions() -> MutexGuard<'static, Vec<Arc<Session>>> {
    static SESSIONS: Mutex<Vec<Arc<Session>>> = Mutex::new(Vec::new());
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the session of a context, which stores its descriptor.
///
/// # Safety
/// `ctx` is null or points to a context that no other thread changes during the call.
pub(super) unsafe fn session(ctx: *const Ctx) -> Result<Arc<Session>, Error> {
    if ctx.is_null() {
        return Err(Error::Null("ctx"));
    }
    // SAFETY: checked not to be null; the caller guarantees the rest.
    let fd = unsafe { (*ctx).fd };
    sessions().iter().find(|session| session.fd() == fd).cloned().ok_or(Error::NoContext)
}

/// # Safety
/// `text` is null or a string.
pub(super) unsafe fn path(name: &'static str, text: *const c_char) -> Result<PathBuf, Error> {
    if text.is_null() {
        return Err(Error::Null(name));
    }
    // SAFETY: checked not to be null; the caller guarantees the rest.
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
    // SAFETY: checked not to be null; the caller guarantees the rest. All bit patterns are valid rulesets.
    Ok(unsafe { slice::from_raw_parts(rs, len) }.to_vec())
}

/// Returns the bytes of a buffer; a null pointer is accepted for zero bytes.
///
/// # Safety
/// `data` is null or points to `size` bytes that do not change while the slice is in use.
pub(super) unsafe fn bytes<'b>(name: &'static str, data: *const c_void, size: usize) -> Result<&'b [u8], Error> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::Null(name)),
        // A slice is limited to `isize::MAX` bytes, and so is any buffer.
        (false, size) if isize::try_from(size).is_err() => Err(SessionError::Long(size).into()),
        // SAFETY: the pointer is not null and the length is within a slice's limit; the caller guarantees the rest.
        (false, _) => Ok(unsafe { slice::from_raw_parts(data.cast(), size) }),
    }
}
