//! Regions that a program attaches to contexts.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use crate::call::{Out, free, guarded, shared};
use crate::client::{Connection, locked};
use crate::status::Error;

/// Memory that can be attached to contexts. It does not change.
pub struct Region(libspin::Region);

/// See `spin_client.h`.
///
/// # Safety
/// `region` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_region_alloc(len: u64, page: u64, region: *mut *mut Region) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Out::handle("region", region)? };
        let made = if page == 0 { libspin::Region::create(len) } else { libspin::Region::create_huge(len, page) };
        out.give(Region(made.map_err(libspin::Error::from)?));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `region` is null, or a handle that is not used again, like the pointer to its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_region_free(region: *mut Region) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(region) };
}

/// See `spin_client.h`.
///
/// # Safety
/// `region` is null or a valid handle; `start` and `len` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_region_memory(region: *const Region, start: *mut *mut c_void, len: *mut usize) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller; regions do not change.
        let region = unsafe { &shared("region", region)?.0 };
        // SAFETY: guaranteed by the caller.
        let (start, len) = unsafe { (Out::new("start", start)?, Out::new("len", len)?) };
        start.set(region.as_ptr().cast());
        // The length of a mapping fits `usize`.
        len.set(usize::try_from(region.len()).unwrap_or(0));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// The handles are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_attach(client: *const Connection, context: u32, region: *const Region) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller; regions do not change.
        let region = unsafe { &shared("region", region)?.0 };
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { locked(client)? }.attach(context, region)?)
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `fd` is negative or an open descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_attach_fd(
    client: *const Connection,
    context: u32,
    fd: c_int,
    start: *const c_void,
    len: u64,
) -> c_int {
    guarded(|| {
        if fd < 0 {
            return Err(Error::Value("fd", "anonymous memory cannot be attached: use spin_region_alloc".to_owned()));
        }
        // SAFETY: guaranteed by the caller.
        let (mut client, file) = unsafe { (locked(client)?, BorrowedFd::borrow_raw(fd)) };
        Ok(client.attach_file(context, file, start.addr() as u64, len)?)
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_detach(client: *const Connection, context: u32, start: *const c_void) -> c_int {
    // SAFETY: guaranteed by the caller.
    guarded(|| Ok(unsafe { locked(client)? }.detach(context, start.addr() as u64)?))
}
