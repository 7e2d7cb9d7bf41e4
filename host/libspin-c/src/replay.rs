//! Captures on the loopback NIC.

use std::ffi::{c_int, c_void};
use std::ptr::null;

use crate::call::{Out, bytes, free, guarded, shared};
use crate::client::{Connection, locked};

/// A capture of the frames that handlers sent.
pub struct Capture(Vec<u8>);

/// Counts of a replay, for C.
#[repr(C)]
#[derive(Debug)]
pub struct Replayed {
    arrived: u64,
    unmatched: u64,
    too_long: u64,
    too_short: u64,
    sent: u64,
}

/// The header's size: `tests/header.c` checks it there.
const _: () = assert!(size_of::<Replayed>() == 40);

impl From<libspin::Replayed> for Replayed {
    fn from(counts: libspin::Replayed) -> Self {
        let libspin::Replayed { arrived, unmatched, too_long, too_short, sent } = counts;
        Self { arrived, unmatched, too_long, too_short, sent }
    }
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `pcap` is null or points to `len` bytes; `counts` and `sent` are null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_replay(
    client: *const Connection,
    pcap: *const c_void,
    len: usize,
    counts: *mut Replayed,
    sent: *mut *mut Capture,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let counts = (!counts.is_null()).then(|| unsafe { Out::new("counts", counts) }).transpose()?;
        // SAFETY: guaranteed by the caller.
        let sent = (!sent.is_null()).then(|| unsafe { Out::handle("sent", sent) }).transpose()?;
        // SAFETY: guaranteed by the caller.
        let pcap = unsafe { bytes("pcap", pcap, len)? };
        // SAFETY: guaranteed by the caller.
        let (frames, replayed) = unsafe { locked(client)? }.replay_counted(pcap)?;
        if let Some(counts) = counts {
            counts.set(replayed.into());
        }
        if let Some(sent) = sent {
            sent.give(Capture(frames));
        }
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `capture` is null or a valid handle; `start` and `len` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_capture_bytes(
    capture: *const Capture,
    start: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller; captures do not change.
        let capture = unsafe { &shared("capture", capture)?.0 };
        // SAFETY: guaranteed by the caller.
        let (start, out_len) = unsafe { (Out::new("start", start)?, Out::new("len", len)?) };
        start.set(if capture.is_empty() { null() } else { capture.as_ptr().cast() });
        out_len.set(capture.len());
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `capture` is null, or a handle of [`spin_replay`] that is not used again, like the pointer to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_capture_free(capture: *mut Capture) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(capture) };
}
