//! Functions that send SLMP messages.

use std::ffi::{c_int, c_void};
use std::net::Ipv4Addr;

use super::call::{Error, bytes, guarded};
use crate::layout::SlmpSock;
use crate::slmp::Sender;

/// See `fpspin.h`.
///
/// # Safety
/// `sock` is null or points to memory where a socket can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slmp_socket(
    sock: *mut SlmpSock,
    wnd_sz: c_int,
    align: c_int,
    fc_us: c_int,
    num_threads: c_int,
) -> c_int {
    guarded("slmp_socket", -1, || {
        if sock.is_null() {
            return Err(Error::Null("sock"));
        }
        Sender::new(wnd_sz, align, fc_us, num_threads)?;
        let made = SlmpSock { parallel: num_threads > 1, wnd_sz, align, fc_us, num_threads };
        // SAFETY: checked not to be null; the caller guarantees the rest.
        unsafe { sock.write(made) };
        Ok(0)
    })
}

/// See `fpspin.h`.
///
/// # Safety
/// `sock` is null or points to a socket that `slmp_socket` made. `buf` is null or points to `sz` bytes that do not
/// change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slmp_sendmsg(
    sock: *mut SlmpSock,
    server: u32,
    msgid: c_int,
    buf: *mut c_void,
    sz: usize,
) -> c_int {
    guarded("slmp_sendmsg", -1, || {
        if sock.is_null() {
            return Err(Error::Null("sock"));
        }
        // SAFETY: checked not to be null; the caller guarantees the rest. `parallel` is not read, since a program may
        // have stored a bit pattern that is no `bool`.
        let (window, align, gap, threads) =
            unsafe { ((*sock).wnd_sz, (*sock).align, (*sock).fc_us, (*sock).num_threads) };
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { bytes("buf", buf, sz)? };
        // `in_addr_t` is in network order.
        let server = Ipv4Addr::from(server.to_ne_bytes());
        Sender::new(window, align, gap, threads)?.send(server, msgid.cast_unsigned(), bytes)?;
        Ok(0)
    })
}

/// See `fpspin.h`.
///
/// # Safety
/// `sock` is null or points to a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slmp_close(sock: *mut SlmpSock) -> c_int {
    guarded("slmp_close", -1, || {
        if sock.is_null() {
            return Err(Error::Null("sock"));
        }
        // Each message uses its own socket, so nothing is open here.
        Ok(0)
    })
}
