//! The exported function `hexdump`.

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
        // Each byte is read once, since others may write the memory at the same time. SAFETY: checked not to be null;
        // the caller guarantees the rest.
        let bytes: Vec<u8> = (0..size).map(|at| unsafe { data.cast::<u8>().add(at).read_volatile() }).collect();
        let text = dump::lines(&bytes);
        // The lines contain no zero byte.
        let text = CString::new(text.trim_end_matches('\n')).unwrap_or_default();
        if size > 0 {
            // C's `puts` keeps the order with the program's own buffered output. SAFETY: a zero-terminated string.
            unsafe { puts(text.as_ptr()) };
        }
        Ok(())
    });
}
