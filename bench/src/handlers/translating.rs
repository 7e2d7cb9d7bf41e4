//! Cost of translating an image's handlers, as at installation.

use std::error::Error;
use std::time::Instant;

use hpu_vm::jit::{Source, Translation};
use hpu_vm::{Checks, Image, Kind};

use super::interp::MACHINE;
use super::jit::options;

/// Returns the number of instructions, counting inlined functions at every place, and the microseconds taken.
///
/// # Errors
/// The bytes are not a valid image, or the image cannot be translated.
pub fn translate(elf: &[u8], checks: Checks) -> Result<(usize, f64), Box<dyn Error>> {
    let image = Image::load(elf, &MACHINE)?;
    let entries: Vec<u32> = Kind::ALL.into_iter().filter_map(|kind| image.handler(kind)).collect();
    let taken = image.addresses_taken();
    let source = Source { code: image.code(), entries: &entries, taken: &taken };
    let begin = Instant::now();
    let translation = Translation::new(source, options(checks))?;
    let taken = begin.elapsed();
    Ok((translation.size().instructions, taken.as_secs_f64() * 1e6))
}
