//! The features that programs need, found by loading small programs.

use std::os::fd::{AsFd, BorrowedFd};

use super::map::ArrayMap;
use super::program::{LoadError, LoadOptions, Program};
use crate::error::NicError;

/// A feature of the kernel, or a privilege of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// CAP_BPF and CAP_NET_ADMIN: XDP programs may be loaded at all.
    Load,
    /// XDP programs of any kind.
    Programs,
    /// CAP_PERFMON: arithmetic of pointers, such as the length of a packet.
    PointerArithmetic,
    /// Array maps that user space can map.
    MappableArrays,
    /// Maps by their index in a list of descriptors.
    MapIndices,
    /// Addresses of values of maps as constants.
    MapValues,
    /// Sign extension, byte swaps, signed division and long jumps.
    InstructionsV4,
    /// Loops that the kernel ends.
    MayGoto,
}

impl Feature {
    /// What a user needs to know when it is missing.
    #[must_use]
    pub const fn when_missing(self) -> &'static str {
        match self {
            Self::Load => {
                "no permission to load XDP programs: run as root or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
            }
            Self::Programs => "the kernel lacks XDP programs (CONFIG_BPF_SYSCALL)",
            Self::PointerArithmetic => {
                "no permission for pointer arithmetic in XDP programs: run as root or with CAP_PERFMON"
            }
            Self::MappableArrays => "the kernel lacks array maps that can be mapped (Linux 5.5)",
            Self::MapIndices => "the kernel lacks maps by index (Linux 5.14)",
            Self::MapValues => "the kernel lacks addresses of map values by index (Linux 5.14)",
            Self::InstructionsV4 => "the kernel lacks version 4 of the eBPF instructions (Linux 6.6)",
            Self::MayGoto => "the kernel lacks may_goto (Linux 6.9)",
        }
    }
}

/// The features that this kernel and this process have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    missing: Vec<Feature>,
}

impl Support {
    /// Tries each feature. Takes less than a millisecond. Privileges are those of the calling thread; without programs,
    /// nothing else can be tried: only [`Feature::Load`] or [`Feature::Programs`] is missing.
    #[must_use]
    pub fn probe() -> Self {
        match load(&[MOVE_0, EXIT], &[]) {
            Ok(_) => {}
            Err(LoadError::Privileges) => return Self { missing: vec![Feature::Load] },
            Err(_) => return Self { missing: vec![Feature::Programs] },
        }
        let map = match ArrayMap::new("spin_probe", 8) {
            Err(NicError::Privileges { .. }) => return Self { missing: vec![Feature::Load] },
            map => map.ok(),
        };
        let maps: Vec<_> = map.iter().map(AsFd::as_fd).collect();
        let mut missing = Vec::new();
        let mut need = |feature, is_there: bool| {
            if !is_there {
                missing.push(feature);
            }
        };
        need(Feature::PointerArithmetic, load(&POINTERS, &[]).is_ok());
        need(Feature::MappableArrays, map.is_some());
        need(Feature::MapIndices, map.is_none() || load(&MAP, &maps).is_ok());
        need(Feature::MapValues, map.is_none() || load(&MAP_VALUE, &maps).is_ok());
        need(Feature::InstructionsV4, load(&VERSION_4, &[]).is_ok());
        need(Feature::MayGoto, load(&MAY_GOTO, &[]).is_ok());
        Self { missing }
    }

    /// Whether a feature is there.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        !self.missing.contains(&feature)
    }

    /// Whether all are there.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// What is missing, in words for users.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        self.missing.iter().map(|feature| feature.when_missing()).collect()
    }
}

fn load(instructions: &[[u8; 8]], maps: &[BorrowedFd<'_>]) -> Result<Program, LoadError> {
    Program::load(instructions, maps, LoadOptions { name: "spin_probe", full_log: false })
}

/// An instruction (`struct bpf_insn`).
pub(super) const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> [u8; 8] {
    let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
    let ([o0, o1], [i0, i1, i2, i3]) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
    [code, registers, o0, o1, i0, i1, i2, i3]
}

/// `r0 = 0`.
pub(super) const MOVE_0: [u8; 8] = instruction(0xb7, 0, 0, 0, 0);
pub(super) const EXIT: [u8; 8] = instruction(0x95, 0, 0, 0, 0);

/// The length of the packet, as a difference of pointers.
const POINTERS: [[u8; 8]; 5] = [
    // r0 = context.data_end; r1 = context.data; r0 -= r1
    instruction(0x61, 0, 1, 4, 0),
    instruction(0x61, 1, 1, 0, 0),
    instruction(0x1f, 0, 1, 0, 0),
    MOVE_0,
    EXIT,
];

/// `r1 = map 0`.
const MAP: [[u8; 8]; 4] = [instruction(0x18, 1, 5, 0, 0), [0; 8], MOVE_0, EXIT];

/// `r1 = address of byte 4 of the value of map 0`, and a load from there.
const MAP_VALUE: [[u8; 8]; 5] =
    [instruction(0x18, 1, 6, 0, 0), instruction(0, 0, 0, 0, 4), instruction(0x61, 0, 1, 0, 0), MOVE_0, EXIT];

const VERSION_4: [[u8; 8]; 8] = [
    // *(u8 *)(r10 - 1) = 1; r0 = *(s8 *)(r10 - 1)
    instruction(0x72, 10, 0, -1, 1),
    instruction(0x91, 0, 10, -1, 0),
    // r0 = (s8)r0; r0 = bswap32 r0; r0 s/= 2; r0 s%= 2
    instruction(0xbf, 0, 0, 8, 0),
    instruction(0xd7, 0, 0, 0, 32),
    instruction(0x37, 0, 0, 1, 2),
    instruction(0x97, 0, 0, 1, 2),
    // gotol +0
    instruction(0x06, 0, 0, 0, 0),
    EXIT,
];

/// A loop that only `may_goto` ends.
const MAY_GOTO: [[u8; 8]; 4] = [MOVE_0, instruction(0xe5, 0, 0, 1, 0), instruction(0x05, 0, 0, -2, 0), EXIT];
