//! A task's code, initial registers and limits.

use crate::code::Code;
use crate::host::HostBytes;
use crate::jit::entry::Entry;
use crate::jit::translation::Translation;

/// Limits of a task; neither is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time limit in microseconds; the task ends soon after.
    pub time: Option<u64>,
    /// Exact instruction limit; requires a counting translation
    /// ([`Options::counting`](crate::jit::Options::counting)).
    pub instructions: Option<u64>,
}

impl Limits {
    /// Time limit in nanoseconds; the largest number means no limit.
    #[inline]
    pub(super) fn nanoseconds(self) -> u64 {
        self.time.map_or(u64::MAX, |micros| micros.saturating_mul(1000))
    }
}

/// A task's code and initial registers.
#[derive(Clone, Copy, Debug)]
pub struct Task<'t> {
    /// Code for the interpreter.
    pub code: &'t Code,
    /// Translated code; `None`: the interpreter runs the task.
    pub translation: Option<&'t Translation>,
    /// Address of the first instruction.
    pub entry: u32,
    /// Initial value of sp.
    pub sp: u32,
    /// Initial value of a0.
    pub argument: u32,
    /// Initial value of tp.
    pub tp: u32,
    /// Time and instruction limits.
    pub limits: Limits,
    /// Whether the task may be parked where it waits for memory to change, so that others run:
    /// [`Exit::Parked`](crate::Exit::Parked). The watchdog decides when. A task with an instruction limit alone has no
    /// watchdog and is parked as soon as it may be waiting.
    pub may_park: bool,
    /// Host memory to which the task may copy its packet without a call of the [device](crate::Device::copied).
    pub host: Option<HostBytes<'t>>,
}

impl<'t> Task<'t> {
    /// Entry of the translated handler.
    #[inline]
    pub(super) fn translated_handler(&self) -> Option<&'t Entry> {
        self.translation.and_then(|translation| translation.handler(self.entry))
    }
}
