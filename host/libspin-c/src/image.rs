//! Handler images.

use std::ffi::{c_char, c_int, c_void};

use crate::call::{Out, bytes, free, guarded, path};
use crate::status::Error;

/// The bytes of an image. spind checks them at install.
pub struct Image(pub(crate) Vec<u8>);

/// See `spin_client.h`.
///
/// # Safety
/// `file` is null or a string; `image` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_image_load(file: *const c_char, image: *mut *mut Image) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let (out, file) = unsafe { (Out::handle("image", image)?, path("file", file)?) };
        let read = std::fs::read(file).map_err(|error| Error::File(file.display().to_string(), error))?;
        out.give(Image(read));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `from` is null or points to `len` bytes; `image` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_image_copy(from: *const c_void, len: usize, image: *mut *mut Image) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let (out, from) = unsafe { (Out::handle("image", image)?, bytes("from", from, len)?) };
        out.give(Image(from.to_vec()));
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `image` is null, or a handle of this module that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_image_free(image: *mut Image) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(image) };
}
