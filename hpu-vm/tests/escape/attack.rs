//! Programs that attempt something, and how they have to end.

use hpu_vm::{Checks, Exit};
use spin_abi::fault::Cause;

use crate::assembly::Assembly;
use crate::guest::Way;

/// Instructions an attempt may take.
pub const LIMIT: u64 = 20_000;
/// What the attacker's own memory is filled with.
pub const FILL: u8 = 0x11;

/// How an attempt has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// By this fault.
    Fault(Cause),
    /// By this one with exact checks; with page checks it is no more than an access to the attacker's own page.
    FaultIfExact(Cause),
    /// With what it may do.
    Done,
    /// By this fault, or none; a translation that took a device for memory may name that instead.
    DeviceOr(Option<Cause>),
}

impl Ends {
    pub fn allows(self, way: Way, exit: Exit) -> bool {
        let done = matches!(exit, Exit::Returned | Exit::Finished);
        let by = |cause| matches!(exit, Exit::Fault(fault) if fault.cause == cause);
        match self {
            Self::Fault(cause) => by(cause),
            Self::FaultIfExact(cause) => {
                if way.checks == Checks::Exact {
                    by(cause)
                } else {
                    done
                }
            }
            Self::Done => done,
            Self::DeviceOr(_) if way.options.is_some() && by(Cause::DeviceAccess) => true,
            Self::DeviceOr(cause) => cause.map_or(done, by),
        }
    }
}

/// A program that attempts something.
#[derive(Clone)]
pub struct Attack {
    pub name: String,
    pub program: Assembly,
    /// Addresses of code that its data are said to hold.
    pub taken: Vec<u32>,
    pub ends: Ends,
}

impl Attack {
    pub fn new(name: impl Into<String>, program: Assembly, ends: Ends) -> Self {
        Self { name: name.into(), program, taken: Vec::new(), ends }
    }

    /// The attack with these addresses of code in data.
    pub fn taken(self, taken: &[u32]) -> Self {
        Self { taken: taken.to_vec(), ..self }
    }
}
