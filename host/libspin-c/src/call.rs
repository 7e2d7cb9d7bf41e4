//! Code shared by all functions: panics, pointer arguments, handles.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::slice;

use crate::status::{Error, Status, remember};

/// Runs the body of a function and returns its code. Panics are caught here.
pub fn guarded(work: impl FnOnce() -> Result<(), Error>) -> c_int {
    // A client whose call panicked has a poisoned lock and is refused afterwards. Other handles are changed by single
    // assignments.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Error::Internal("panic")));
    result.map_or_else(
        |error| {
            remember(&error);
            error.status().into()
        },
        |()| Status::Ok.into(),
    )
}

/// Runs the body of a function that returns a value, with `otherwise` for a failure.
pub fn guarded_or<T>(otherwise: T, work: impl FnOnce() -> Result<T, Error>) -> T {
    let mut found = None;
    guarded(|| {
        found = Some(work()?);
        Ok(())
    });
    found.unwrap_or(otherwise)
}

/// # Safety
/// `handle` is null, or points to a value that nobody changes while the reference is in use.
pub unsafe fn shared<'h, T>(name: &'static str, handle: *const T) -> Result<&'h T, Error> {
    // SAFETY: guaranteed by the caller; null gives `None`.
    unsafe { handle.as_ref() }.ok_or(Error::Null(name))
}

/// # Safety
/// `handle` is null, or points to a value that nobody else uses while the reference is in use.
pub unsafe fn exclusive<'h, T>(name: &'static str, handle: *mut T) -> Result<&'h mut T, Error> {
    // SAFETY: guaranteed by the caller; null gives `None`.
    unsafe { handle.as_mut() }.ok_or(Error::Null(name))
}

/// # Safety
/// `text` is null, or a string that nobody changes while the reference is in use.
pub unsafe fn text<'t>(name: &'static str, text: *const c_char) -> Result<&'t str, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { c_str(name, text)? }.to_str().map_err(|_| Error::Utf8(name))
}

/// Returns a text that may be absent, with a null pointer for none.
///
/// # Safety
/// As for [`text`].
pub unsafe fn optional_text(name: &'static str, from: *const c_char) -> Result<Option<String>, Error> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    Ok(Some(unsafe { text(name, from)? }.to_owned()))
}

/// Returns a path, which need not be UTF-8.
///
/// # Safety
/// As for [`text`].
pub unsafe fn path<'t>(name: &'static str, text: *const c_char) -> Result<&'t Path, Error> {
    // SAFETY: guaranteed by the caller.
    let text = unsafe { c_str(name, text)? };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// # Safety
/// As for [`text`].
unsafe fn c_str<'t>(name: &'static str, text: *const c_char) -> Result<&'t CStr, Error> {
    if text.is_null() {
        return Err(Error::Null(name));
    }
    // SAFETY: checked not to be null; the caller guarantees the rest.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Returns the elements of an array; a null pointer is accepted for none.
///
/// # Safety
/// `from` is null, or points to `count` elements that nobody changes while the slice is in use.
pub unsafe fn array<'a, T>(name: &'static str, from: *const T, count: usize) -> Result<&'a [T], Error> {
    // A slice is limited to `isize::MAX` bytes, and so is any array.
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    match (from.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::Null(name)),
        (false, _) if !fits => Err(Error::Value(name, format!("{count} elements"))),
        // SAFETY: not null, and within a slice's limit; the caller guarantees the rest.
        (false, _) => Ok(unsafe { slice::from_raw_parts(from, count) }),
    }
}

/// # Safety
/// As for [`array`].
pub unsafe fn bytes<'a>(name: &'static str, from: *const c_void, len: usize) -> Result<&'a [u8], Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { array(name, from.cast(), len) }
}

/// Place of a result. It is checked before a function has effects.
pub struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    /// `to` is null, or may be written until the function returns.
    pub unsafe fn new(name: &'static str, to: *mut T) -> Result<Self, Error> {
        NonNull::new(to).map(Self).ok_or(Error::Null(name))
    }

    pub fn set(self, value: T) {
        // SAFETY: `new`'s caller guarantees that the place may be written. C's places need no drop of a former value.
        unsafe { self.0.write(value) };
    }
}

impl<T> Out<*mut T> {
    /// Prepares the place of a handle, which is null if the function fails.
    ///
    /// # Safety
    /// As for [`Out::new`].
    pub unsafe fn handle(name: &'static str, to: *mut *mut T) -> Result<Self, Error> {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Self::new(name, to)? };
        // SAFETY: guaranteed by the caller.
        unsafe { out.0.write(null_mut()) };
        Ok(out)
    }

    /// Gives a value to the program, which frees it by [`free`].
    pub fn give(self, value: T) {
        self.set(Box::into_raw(Box::new(value)));
    }
}

/// Frees a handle; a null pointer is accepted.
///
/// # Safety
/// `handle` is null, or was given by [`Out::give`] and is not used again.
pub unsafe fn free<T>(handle: *mut T) {
    guarded(|| {
        if !handle.is_null() {
            // SAFETY: guaranteed by the caller: the box is this program's, and this is its last use.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::{guarded, guarded_or};
    use crate::client::{spin_connect, spin_disconnect, spin_remove};
    use crate::status::{Status, spin_last_error};
    use std::ffi::{CStr, CString, c_int};
    use std::os::unix::net::UnixListener;
    use std::ptr::null_mut;

    const INTERNAL: c_int = Status::Internal as c_int;

    fn last_error() -> String {
        // SAFETY: the function returns a string, which is valid until this thread's next failing call.
        unsafe { CStr::from_ptr(spin_last_error()) }.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn a_panic_is_an_error_code() {
        assert_eq!(guarded(|| panic!("a test")), INTERNAL);
        assert_eq!(last_error(), "internal error: panic");
        assert_eq!(guarded_or(7, || panic!("a test")), 7);
        assert_eq!(guarded(|| Ok(())), 0);
    }

    /// A part of a message may be left in the connection.
    #[test]
    fn a_client_is_not_used_after_a_panic() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("spind.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let path = CString::new(path.to_str().expect("UTF-8")).expect("no zero");
        let mut client = null_mut();
        // SAFETY: a string and a place.
        assert_eq!(unsafe { spin_connect(path.as_ptr(), &raw mut client) }, 0);
        drop(listener);
        // SAFETY: the handle is valid.
        let panics = || unsafe { crate::client::locked(client) }.map(|_lock| panic!("a test"));
        assert_eq!(guarded(panics), INTERNAL);
        // SAFETY: the handle is valid.
        assert_eq!(unsafe { spin_remove(client, 1) }, INTERNAL);
        assert_eq!(last_error(), "internal error: an earlier call failed: disconnect");
        // SAFETY: the handle is not used again.
        unsafe { spin_disconnect(client) };
    }
}
