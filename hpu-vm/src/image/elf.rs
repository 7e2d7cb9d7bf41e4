//! Parsing of ELF headers and segments, which are checked before any allocation that depends on them.
//!
//! Offsets and counts are read through the `object` crate, which never reads outside the slice it was given.

use object::LittleEndian as LE;
use object::elf::{self, FileHeader32, ProgramHeader32};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use spin_abi::map::{L1_ALIAS, L1_BASE, L1_DATA, L2_BASE, Machine, PAGE, PROGRAM_BASE, PROGRAM_MOST};

use super::LoadError;
use crate::view::RegionKind;

/// Maximum number of LOAD segments of an image.
pub(super) const MAX_SEGMENTS: usize = 16;

/// Permitted use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Execute,
    Read,
    Write,
}

/// A LOAD segment that passed its own checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'d> {
    pub(super) address: u32,
    /// Bytes in memory, at least 1; those after `bytes` are zero.
    pub(super) size: u32,
    pub(super) bytes: &'d [u8],
    pub(super) access: Access,
    /// Memory that contains the segment.
    pub(super) kind: RegionKind,
}

impl Segment<'_> {
    /// All `size` bytes.
    pub(super) fn filled(&self) -> Box<[u8]> {
        let mut filled = self.bytes.to_vec();
        filled.resize(self.size as usize, 0);
        filled.into_boxed_slice()
    }

    fn end(&self) -> u64 {
        u64::from(self.address) + u64::from(self.size)
    }
}

/// Converts an error of the reader; `what` is the part of the file that was read.
pub(crate) fn damaged(what: &'static str, data: &[u8]) -> impl FnOnce(object::read::Error) -> LoadError {
    let file = data.len();
    move |detail| LoadError::Damaged { what, detail, file }
}

/// The file header of an image that an HPU can run.
pub(super) fn header(data: &[u8]) -> Result<&FileHeader32<LE>, LoadError> {
    check_identity(data)?;
    let header = FileHeader32::<LE>::parse(data).map_err(damaged("file header", data))?;
    if header.e_version(LE) != u32::from(elf::EV_CURRENT.0) {
        return Err(LoadError::Version(header.e_version(LE)));
    }
    if header.e_type(LE) != elf::ET_EXEC {
        return Err(LoadError::Type(header.e_type(LE).0));
    }
    if header.e_machine(LE) != elf::EM_RISCV {
        return Err(LoadError::Machine(header.e_machine(LE).0));
    }
    check_flags(header.e_flags(LE).0)?;
    Ok(header)
}

/// Checks magic, class, encoding and version, which define how to read the rest.
fn check_identity(data: &[u8]) -> Result<(), LoadError> {
    match *data {
        [0x7f, b'E', b'L', b'F', class, encoding, version, ..] => match (class, encoding, version) {
            (1, 1, 1) => Ok(()),
            (1, 1, version) => Err(LoadError::Version(version.into())),
            (1, encoding, _) => Err(LoadError::Encoding(encoding)),
            (class, ..) => Err(LoadError::Class(class)),
        },
        _ => Err(LoadError::NotElf(data.iter().take(7).copied().collect())),
    }
}

/// Checks the flags of the RISC-V psABI ("File Header"). RVC and TSO require nothing that an HPU lacks.
fn check_flags(flags: u32) -> Result<(), LoadError> {
    let known = elf::EF_RISCV_RVC | elf::EF_RISCV_TSO;
    match flags & !known.0 {
        0 => Ok(()),
        rest if rest & elf::EF_RISCV_FLOAT_ABI != 0 => Err(LoadError::FloatAbi(flags)),
        rest if rest & elf::EF_RISCV_RVE.0 != 0 => Err(LoadError::Embedded(flags)),
        _ => Err(LoadError::Flags(flags)),
    }
}

/// The LOAD segments that have bytes, by address.
pub(super) fn segments<'d>(
    header: &FileHeader32<LE>,
    data: &'d [u8],
    machine: &Machine,
) -> Result<Vec<Segment<'d>>, LoadError> {
    let headers = header.program_headers(LE, data).map_err(damaged("program headers", data))?;
    let mut segments = Vec::new();
    for header in headers {
        match header.p_type(LE) {
            elf::PT_LOAD => {
                let found = segment(header, data, machine);
                segments.extend(found.map_err(|error| explain_program(error, headers, machine))?);
            }
            kind @ (elf::PT_DYNAMIC | elf::PT_INTERP | elf::PT_TLS) => return Err(LoadError::SegmentType(kind.0)),
            _ => {}
        }
        if segments.len() > MAX_SEGMENTS {
            return Err(LoadError::TooManySegments { max: MAX_SEGMENTS });
        }
    }
    if segments.is_empty() {
        return Err(LoadError::NoSegments);
    }
    segments.sort_by_key(|segment| segment.address);
    check_overlap(&segments)?;
    Ok(segments)
}

/// Replaces the error of code or constants outside of program memory if a larger program memory would hold the image.
fn explain_program(error: LoadError, headers: &[ProgramHeader32<LE>], machine: &Machine) -> LoadError {
    let LoadError::Outside { access, address, .. } = error else { return error };
    // What may be written lies elsewhere.
    if access == WRITABLE || !(PROGRAM_BASE..PROGRAM_BASE + PROGRAM_MOST).contains(&address) {
        return error;
    }
    let loaded =
        headers.iter().filter(|header| header.p_type(LE) == elf::PT_LOAD && header.p_vaddr(LE) >= PROGRAM_BASE);
    let ends = loaded.map(|header| u64::from(header.p_vaddr(LE) - PROGRAM_BASE) + u64::from(header.p_memsz(LE)));
    match ends.max().map(u32::try_from) {
        Some(Ok(bytes)) if bytes <= PROGRAM_MOST => {
            LoadError::TooMuchCode { bytes, has: machine.program_size, needed: bytes.next_multiple_of(PAGE) }
        }
        _ => error,
    }
}

/// Checks a LOAD segment. `None` when it has no bytes, or none in the file and begins at the start of L1. PsPIN's
/// linker script reserves the runtime's stack there, and `.data_tiny_l1` has the same addresses by its alias.
fn segment<'d>(
    header: &ProgramHeader32<LE>,
    data: &'d [u8],
    machine: &Machine,
) -> Result<Option<Segment<'d>>, LoadError> {
    let (address, size) = (header.p_vaddr(LE), header.p_memsz(LE));
    let (offset, in_file) = (header.p_offset(LE), header.p_filesz(LE));
    if in_file > size {
        return Err(LoadError::FileAboveMemory { address, file: in_file, memory: size });
    }
    if size == 0 || in_file == 0 && address == L1_BASE {
        return Ok(None);
    }
    let bytes = data
        .get(offset as usize..)
        .and_then(|rest| rest.get(..in_file as usize))
        .ok_or(LoadError::BeyondFile { address, offset, size: in_file, file: data.len() })?;
    let access = access(header, address)?;
    if u64::from(address) + u64::from(size) > 1 << 32 {
        return Err(LoadError::Wraps { address, size });
    }
    if access == Access::Execute && !address.is_multiple_of(2) {
        return Err(LoadError::OddCode { address });
    }
    let kind = region(access, address, size, machine)?;
    // Data linked to the alias of the own cluster's L1 is in each cluster.
    let in_alias = address.wrapping_sub(L1_ALIAS);
    let address = if in_alias < L1_DATA { L1_BASE + in_alias } else { address };
    Ok(Some(Segment { address, size, bytes, access, kind }))
}

fn access(header: &ProgramHeader32<LE>, address: u32) -> Result<Access, LoadError> {
    let has = |flag: elf::ProgramFlags| header.p_flags(LE).0 & flag.0 != 0;
    match (has(elf::PF_R), has(elf::PF_W), has(elf::PF_X)) {
        (_, true, true) => Err(LoadError::WritableCode { address }),
        (_, true, false) => Ok(Access::Write),
        (_, false, true) => Ok(Access::Execute),
        (true, false, false) => Ok(Access::Read),
        (false, false, false) => Err(LoadError::NoPermission { address }),
    }
}

/// Name of the access to segments that may be written.
const WRITABLE: &str = "writable";

/// A memory that an image may fill.
struct ImageRegion {
    name: &'static str,
    base: u32,
    size: u32,
    kind: RegionKind,
}

/// The memory that contains a segment. Its access must allow that memory.
fn region(access: Access, address: u32, size: u32, machine: &Machine) -> Result<RegionKind, LoadError> {
    let regions = [
        ImageRegion { name: "program memory", base: PROGRAM_BASE, size: machine.program_size, kind: RegionKind::Code },
        ImageRegion { name: "L2 data", base: L2_BASE, size: machine.l2_data_size, kind: RegionKind::Data },
        ImageRegion {
            name: "handler memory",
            base: machine.handler_mem_base,
            size: machine.handler_mem_size,
            kind: RegionKind::HandlerMemory,
        },
        // Each cluster has a copy: see `super::data`.
        ImageRegion { name: "L1 data", base: L1_BASE, size: L1_DATA, kind: RegionKind::Scratchpad },
        ImageRegion { name: "L1 data by its alias", base: L1_ALIAS, size: L1_DATA, kind: RegionKind::Scratchpad },
    ];
    let (access, allowed) = match access {
        Access::Execute => ("executable", &regions[..1]),
        Access::Read => ("read-only", &regions[..]),
        Access::Write => (WRITABLE, &regions[1..]),
    };
    allowed.iter().find(|region| region.contains(address, size)).map(|region| region.kind).ok_or_else(|| {
        let describe = |region: &ImageRegion| format!("{} ({:#010x}, {} bytes)", region.name, region.base, region.size);
        let allowed = allowed.iter().map(describe).collect::<Vec<_>>().join(" or ");
        LoadError::Outside { access, address, size, allowed }
    })
}

impl ImageRegion {
    fn contains(&self, address: u32, size: u32) -> bool {
        let end = u64::from(address) + u64::from(size);
        address >= self.base && end <= u64::from(self.base) + u64::from(self.size)
    }
}

/// Checks that segments, sorted by address, do not overlap. If any do, two neighbours do.
fn check_overlap(segments: &[Segment<'_>]) -> Result<(), LoadError> {
    for pair in segments.windows(2) {
        let [low, high] = pair else { continue };
        if low.end() > u64::from(high.address) {
            return Err(LoadError::Overlap { address: high.address, other: low.address, size: low.size });
        }
    }
    Ok(())
}
