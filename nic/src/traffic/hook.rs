//! XDP programs at the receiving end of test traffic.

use libbpf_rs::MapHandle;
use std::os::fd::AsFd;

use super::object::{Counted, load, read_counts, set_up};
use super::pattern::Pattern;
use crate::afxdp::attach::{Attached, attach_either};
use crate::afxdp::config::Mode;
use crate::afxdp::interface::Interface;
use crate::bpf::{map, program, refused};
use crate::error::NicError;

/// What the program does with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookProgram {
    /// Counts and drops frames of the run, passes all others.
    Count,
    /// Sends UDP datagrams back to their sender, with XDP_TX. Passes all others.
    Reflect,
    /// Passes all frames. A veth needs a program before it accepts frames that its peer redirects.
    Accept,
}

/// A program on an interface. Dropping it detaches.
pub struct Hook {
    _attached: Attached,
    counts: MapHandle,
    counted: Counted,
}

impl Hook {
    /// Attaches a program to an interface, in native mode where the driver supports it. `pattern` tells the frames of the run.
    ///
    /// # Errors
    /// No such interface, no privileges, or another program is attached.
    pub fn attach(interface: &str, program_kind: HookProgram, pattern: &Pattern) -> Result<Self, NicError> {
        let interface = Interface::find(interface)?;
        let (name, counted) = match program_kind {
            HookProgram::Count => ("spin_count", Counted::Received),
            HookProgram::Reflect => ("spin_reflect", Counted::Reflected),
            HookProgram::Accept => ("spin_accept", Counted::Received),
        };
        let object = load(&[name])?;
        set_up(&object, pattern, interface.index)?;
        let program = program(&object, name).map_err(|error| refused(&error))?;
        let counts = map(&object, "counts").map_err(|error| refused(&error))?;
        let attached = attach_either([program.as_fd(); 2], &interface, Mode::Auto)?;
        Ok(Self { _attached: attached, counts, counted })
    }

    /// Packets and bytes that the program counted.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn counts(&self) -> Result<[u64; 2], NicError> {
        read_counts(&self.counts, self.counted)
    }
}
