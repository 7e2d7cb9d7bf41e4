//! Cost of translating an image: time, and memory of the process.

use std::error::Error;
use std::time::Duration;

use hpu_vm::jit::Translation;
use hpu_vm::{Checks, Image};

use super::guest::translate;
use super::variant::processor_time;

/// A translation and its cost.
#[derive(Debug)]
pub struct Translated {
    /// The translation.
    pub translation: Translation,
    /// Processor time taken.
    pub time: Duration,
    /// Most bytes that the process had resident meanwhile, less those before.
    pub memory: u64,
}

/// Translates an image, and measures that.
///
/// # Errors
/// The image cannot be translated, or the kernel does not tell memory.
pub fn measure(image: &Image, checks: Checks) -> Result<Translated, Box<dyn Error>> {
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = resident("VmRSS:")?;
    let begin = processor_time();
    let translation = translate(image, checks)?;
    let time = processor_time() - begin;
    Ok(Translated { translation, time, memory: resident("VmHWM:")?.saturating_sub(before) })
}

/// Number of bytes in a line of this process's status.
fn resident(name: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no memory in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}
