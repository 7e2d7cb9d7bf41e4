//! An installed context.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use crate::call::{Out, free, guarded, guarded_or, shared};
use crate::status::c_string;

/// An installed context: its id, its host memory and spind's warnings. It does not change.
pub struct Context {
    installed: libspin::Context,
    warnings: Vec<CString>,
}

impl Context {
    pub(crate) fn new(installed: libspin::Context) -> Self {
        let warnings = installed.warnings.iter().map(|warning| c_string(warning)).collect();
        Self { installed, warnings }
    }
}

/// See `spin_client.h`.
///
/// # Safety
/// `context` is null, or a handle that is not used again, like the pointer to its host memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_context_free(context: *mut Context) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(context) };
}

/// See `spin_client.h`.
///
/// # Safety
/// `context` is null or a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_context_id(context: *const Context) -> u32 {
    // SAFETY: guaranteed by the caller; contexts do not change.
    guarded_or(0, || Ok(unsafe { shared("context", context)? }.installed.id))
}

/// See `spin_client.h`.
///
/// # Safety
/// `context` is null or a valid handle; `start` and `len` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_context_host_memory(
    context: *const Context,
    start: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller; contexts do not change.
        let context = unsafe { shared("context", context)? };
        // SAFETY: guaranteed by the caller.
        let (start, len) = unsafe { (Out::new("start", start)?, Out::new("len", len)?) };
        let host = context.installed.host.as_ref();
        start.set(host.map_or(null_mut(), |host| host.as_ptr().cast()));
        // The length of a mapping fits `usize`.
        len.set(host.map_or(0, |host| usize::try_from(host.len()).unwrap_or(0)));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `context` is null or a valid handle; `address` and `size` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_context_handler_memory(
    context: *const Context,
    address: *mut u32,
    size: *mut u32,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller; contexts do not change.
        let area = unsafe { shared("context", context)? }.installed.areas.handler_mem;
        // SAFETY: guaranteed by the caller.
        let (address, size) = unsafe { (Out::new("address", address)?, Out::new("size", size)?) };
        address.set(area.address);
        size.set(area.size);
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `context` is null or a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_context_warning(context: *const Context, index: usize) -> *const c_char {
    guarded_or(null(), || {
        // SAFETY: guaranteed by the caller; contexts do not change.
        let warnings = unsafe { &shared("context", context)?.warnings };
        Ok(warnings.get(index).map_or(null(), |warning| warning.as_ptr()))
    })
}
