//! Validity of machines: memories have configured sizes, in an address map with fixed addresses.

use super::{
    L1_ALIAS, L1_DATA, L1_STRIDE, L2_BASE, Machine, PACKET_WINDOW, PAGE, PERIPHERALS, PROGRAM_BASE, PROGRAM_MOST,
    STACK_WINDOW,
};

/// Reason why a machine is impossible. Values have the names of the fields of [`Machine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineError {
    /// Count of zero, or too high.
    Count {
        /// Name of the counted value.
        what: &'static str,
        /// Requested count.
        count: u32,
        /// Maximum.
        most: u32,
    },
    /// Address or size that is no multiple of [`PAGE`].
    Unaligned {
        /// Name of the value.
        what: &'static str,
        /// The value.
        value: u32,
    },
    /// Size below the need of the machine's own windows.
    Small {
        /// Name of the size.
        what: &'static str,
        /// Requested bytes.
        size: u32,
        /// Minimum, in bytes.
        least: u32,
        /// Use of these bytes.
        uses: &'static str,
    },
    /// Size above the available room.
    Large {
        /// Name of the size.
        what: &'static str,
        /// Requested bytes.
        size: u32,
        /// Maximum, in bytes.
        most: u32,
    },
    /// Memory outside [`L2_BASE`] to [`PROGRAM_BASE`].
    OutsideL2 {
        /// Name of the memory.
        what: &'static str,
        /// First address.
        base: u32,
        /// Size in bytes.
        size: u32,
    },
    /// Two memories that overlap.
    Overlap {
        /// Name and end address of the lower memory.
        lower: (&'static str, u32),
        /// Name and first address of the upper memory.
        upper: (&'static str, u32),
    },
}

impl core::fmt::Display for MachineError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Count { what, count, most } => write!(f, "{what} {count}: between 1 and {most}"),
            Self::Unaligned { what, value } => {
                let below = (value - value % PAGE).max(PAGE);
                write!(f, "{what} {value:#x}: a multiple of {PAGE} (a page), such as {below:#x}")
            }
            Self::Small { what, size, least, uses } => {
                write!(f, "{what} {size:#x}: at least {least:#x}, for {uses}")
            }
            Self::Large { what, size, most } => write!(f, "{what} {size:#x}: at most {most:#x}"),
            Self::OutsideL2 { what, base, size } => write!(
                f,
                "{what}_base {base:#x}: {size:#x} bytes from there are not within L2 ({L2_BASE:#x} to {PROGRAM_BASE:#x}); move it, \
                 or make {what}_size smaller"
            ),
            Self::Overlap { lower: (lower, end), upper: (upper, base) } => write!(
                f,
                "{upper}_base {base:#x}: {lower} reaches up to {end:#x}; make {lower}_size smaller, or move {upper}_base up"
            ),
        }
    }
}

impl core::error::Error for MachineError {}

/// A memory in L2.
struct Memory {
    name: &'static str,
    base: u32,
    size: u32,
}

impl Machine {
    /// Checks that every memory has a place, that no two memories overlap, and that all windows begin at pages.
    ///
    /// # Errors
    /// See [`MachineError`]: the first violation found.
    pub fn check(&self) -> Result<(), MachineError> {
        between("clusters", self.clusters, Self::MAX_CLUSTERS)?;
        between("hpus_per_cluster", self.hpus_per_cluster, Self::MAX_HPUS)?;
        self.check_alignment()?;
        // L1 ends below the next cluster's L1, and its alias ends below the peripherals.
        at_most("l1_size", self.l1_size, L1_STRIDE.min(PERIPHERALS - L1_ALIAS))?;
        let windows = L1_DATA + self.hpus_per_cluster * (STACK_WINDOW + PACKET_WINDOW);
        at_least("l1_size", self.l1_size, windows, "images' data, the stack and the packet window of each HPU")?;
        at_most("program_size", self.program_size, PROGRAM_MOST)?;
        at_least("program_size", self.program_size, PAGE, "code")?;
        at_least("l2_data_size", self.l2_data_size, PAGE, "data")?;
        at_least("handler_mem_size", self.handler_mem_size, PAGE, "handler memory")?;
        let windows = self.hpus() * PACKET_WINDOW;
        at_least("l2_packet_size", self.l2_packet_size, windows, "the packet window of each HPU")?;
        self.check_l2()
    }

    fn check_alignment(&self) -> Result<(), MachineError> {
        let values = [
            ("l1_size", self.l1_size),
            ("l2_data_size", self.l2_data_size),
            ("handler_mem_base", self.handler_mem_base),
            ("handler_mem_size", self.handler_mem_size),
            ("l2_packet_base", self.l2_packet_base),
            ("l2_packet_size", self.l2_packet_size),
            ("program_size", self.program_size),
        ];
        match values.into_iter().find(|(_, value)| !value.is_multiple_of(PAGE)) {
            Some((what, value)) => Err(MachineError::Unaligned { what, value }),
            None => Ok(()),
        }
    }

    /// Checks the memories in L2. Data is at the start of L2; the others may lie anywhere in it.
    fn check_l2(&self) -> Result<(), MachineError> {
        at_most("l2_data_size", self.l2_data_size, PROGRAM_BASE - L2_BASE)?;
        let data = Memory { name: "l2_data", base: L2_BASE, size: self.l2_data_size };
        let handler = Memory { name: "handler_mem", base: self.handler_mem_base, size: self.handler_mem_size };
        let packet = Memory { name: "l2_packet", base: self.l2_packet_base, size: self.l2_packet_size };
        handler.check_place()?;
        packet.check_place()?;
        for (one, other) in [(&data, &handler), (&data, &packet), (&handler, &packet)] {
            one.check_beside(other)?;
        }
        Ok(())
    }
}

impl Memory {
    fn check_place(&self) -> Result<(), MachineError> {
        let Self { name, base, size } = *self;
        let room = PROGRAM_BASE.checked_sub(base).filter(|_| base >= L2_BASE);
        match room {
            Some(room) if size <= room => Ok(()),
            _ => Err(MachineError::OutsideL2 { what: name, base, size }),
        }
    }

    /// Checks that two memories do not overlap.
    fn check_beside(&self, other: &Self) -> Result<(), MachineError> {
        let (lower, upper) = if other.base < self.base { (other, self) } else { (self, other) };
        let end = lower.base + lower.size;
        if end <= upper.base {
            return Ok(());
        }
        Err(MachineError::Overlap { lower: (lower.name, end), upper: (upper.name, upper.base) })
    }
}

const fn between(what: &'static str, count: u32, most: u32) -> Result<(), MachineError> {
    if count >= 1 && count <= most { Ok(()) } else { Err(MachineError::Count { what, count, most }) }
}

const fn at_most(what: &'static str, size: u32, most: u32) -> Result<(), MachineError> {
    if size <= most { Ok(()) } else { Err(MachineError::Large { what, size, most }) }
}

const fn at_least(what: &'static str, size: u32, least: u32, uses: &'static str) -> Result<(), MachineError> {
    if size >= least { Ok(()) } else { Err(MachineError::Small { what, size, least, uses }) }
}
