//! `hexdump`.

use std::ffi::{CString, c_char, c_int, c_void};

use super::call::{Error, guarded};
use crate::dump;

unsafe extern "C" {
    fn puts(text: *const c_char) -> c_int;
}

/// See `fpspin.h`.
///
/// # Safety
/// `data` is null or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexdump(data: *const c_void, size: usize) {
    guarded("hexdump", (), || {
        if data.is_null() && size > 0 {
            return Err(Error::Null("data"));
        }
        // Others may write them meanwhile: each is read once.
        // SAFETY: not null, so the caller's promise.
        let bytes: Vec<u8> = (0..size).map(|at| unsafe { data.cast::<u8>().add(at).read_volatile() }).collect();
        let text = dump::lines(&bytes);
        // There are no zeroes in the lines.
        let text = CString::new(text.trim_end_matches('\n')).unwrap_or_default();
        if size > 0 {
            // The program's own output is in C's buffer: this comes behind it.
            // SAFETY: a string.
            unsafe { puts(text.as_ptr()) };
        }
        Ok(())
    });
}
