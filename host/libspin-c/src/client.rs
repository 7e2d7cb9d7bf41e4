//! Connections and requests.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use libspin::{Client, DEFAULT_SOCKET, MAX_BLOB};

use crate::call::{Out, array, bytes, free, guarded, optional_text, path, shared, text};
use crate::context::Context;
use crate::image::Image;
use crate::options::Options;
use crate::status::Error;

/// A connection. Calls of several threads take turns.
pub struct Connection(Mutex<Client>);

impl Connection {
    /// Locks the connection. After a panic a part of a message may be left in it.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, Client>, Error> {
        self.0.lock().map_err(|_| Error::Internal("an earlier call failed: disconnect"))
    }
}

/// Locks the connection behind a handle.
///
/// # Safety
/// `client` is null, or a handle of [`spin_connect`] that is not freed while the lock is held.
pub(crate) unsafe fn locked<'c>(client: *const Connection) -> Result<MutexGuard<'c, Client>, Error> {
    // SAFETY: guaranteed by the caller. The lock allows several threads.
    unsafe { shared("client", client)? }.lock()
}

/// Returns the version of the control protocol that this library speaks.
#[unsafe(no_mangle)]
pub extern "C" fn spin_protocol_version() -> u32 {
    spin_abi::control::VERSION.into()
}

/// Returns the version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn spin_library_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// See `spin_client.h`.
///
/// # Safety
/// `socket` is null or a string; `client` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_connect(socket: *const c_char, client: *mut *mut Connection) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Out::handle("client", client)? };
        let connected = if socket.is_null() {
            Client::connect(DEFAULT_SOCKET)
        } else {
            // SAFETY: guaranteed by the caller.
            Client::connect(unsafe { path("socket", socket)? })
        };
        out.give(Connection(Mutex::new(connected?)));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null, or a handle of [`spin_connect`] that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_disconnect(client: *mut Connection) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(client) };
}

/// See `spin_client.h`.
///
/// # Safety
/// The handles are null or valid, and no other thread changes `options`; `context` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_install(
    client: *const Connection,
    image: *const Image,
    options: *const Options,
    context: *mut *mut Context,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Out::handle("context", context)? };
        // SAFETY: guaranteed by the caller. Images never change.
        let (image, options) = unsafe { (shared("image", image)?, shared("options", options)?) };
        // SAFETY: guaranteed by the caller.
        let installed = unsafe { locked(client)? }.install(&options.0, &image.0)?;
        out.give(Context::new(installed));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_remove(client: *const Connection, context: u32) -> c_int {
    // SAFETY: guaranteed by the caller.
    guarded(|| Ok(unsafe { locked(client)? }.remove(context)?))
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `name` is null or a string; `context` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_find(client: *const Connection, name: *const c_char, context: *mut u32) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let (out, name) = unsafe { (Out::new("context", context)?, text("name", name)?) };
        // SAFETY: guaranteed by the caller.
        out.set(unsafe { locked(client)? }.find(name)?);
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `rules` is null or points to `count` strings; `eom` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_set_rules(
    client: *const Connection,
    context: u32,
    rules: *const *const c_char,
    count: usize,
    eom: *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let (rules, eom) = unsafe { (array("rules", rules, count)?, optional_text("eom", eom)?) };
        // SAFETY: guaranteed by the caller.
        let own = |&rule: &*const c_char| unsafe { text("rules", rule) }.map(str::to_owned);
        let rules = rules.iter().map(own).collect::<Result<_, Error>>()?;
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { locked(client)? }.set_rules(context, rules, eom)?)
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `to` is null or `len` bytes from there may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_read_memory(
    client: *const Connection,
    context: u32,
    address: u32,
    to: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { spin_read_unit_memory(client, context, 0, address, to, len) }
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `to` is null or `len` bytes from there may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_read_unit_memory(
    client: *const Connection,
    context: u32,
    unit: u32,
    address: u32,
    to: *mut c_void,
    len: usize,
) -> c_int {
    guarded(|| {
        if to.is_null() {
            return Err(Error::Null("to"));
        }
        if len > MAX_BLOB {
            return Err(Error::Value("len", format!("{len} bytes: at most {MAX_BLOB} at a time")));
        }
        // The program's bytes may be uninitialised, and no slice may have such bytes.
        let mut read = vec![0; len];
        // SAFETY: guaranteed by the caller.
        unsafe { locked(client)? }.read_unit_memory(context, unit, address, &mut read)?;
        // SAFETY: `to` is not null, and the caller guarantees its `len` bytes; the vector is this function's own.
        unsafe { ptr::copy_nonoverlapping(read.as_ptr(), to.cast(), len) };
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `from` is null or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_write_memory(
    client: *const Connection,
    context: u32,
    address: u32,
    from: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { spin_write_unit_memory(client, context, 0, address, from, len) }
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `from` is null or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_write_unit_memory(
    client: *const Connection,
    context: u32,
    unit: u32,
    address: u32,
    from: *const c_void,
    len: usize,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let from = unsafe { bytes("from", from, len)? };
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { locked(client)? }.write_unit_memory(context, unit, address, from)?)
    })
}
