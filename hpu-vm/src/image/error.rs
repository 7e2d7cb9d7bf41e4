//! Reasons to refuse an image.

/// A reason to refuse an image. Each message tells what was found and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The ELF magic is missing.
    #[error("not an ELF file: it begins with {0:02x?}; compile handlers with spin-cc")]
    NotElf(Vec<u8>),
    /// A header or table lies outside the file or is malformed.
    #[error("damaged ELF file: {what} ({detail}); the file has {file} bytes")]
    Damaged {
        /// Part of the file.
        what: &'static str,
        /// Error of the reader.
        detail: object::read::Error,
        /// Length of the file.
        file: usize,
    },
    /// The class is not ELFCLASS32.
    #[error("ELF class {0} (2 = 64-bit); HPUs are 32-bit: compile for riscv32")]
    Class(u8),
    /// The file is not little-endian.
    #[error("ELF data encoding {0} (2 = big-endian); HPUs are little-endian")]
    Encoding(u8),
    /// The ELF version is not 1.
    #[error("ELF version {0}; only version 1 exists")]
    Version(u32),
    /// The type is not ET_EXEC.
    #[error(
        "ELF type {0} (1 = object, 3 = shared or position-independent); link a static executable (-static -no-pie)"
    )]
    Type(u16),
    /// The machine is not EM_RISCV.
    #[error("ELF machine {0}; HPUs are RISC-V (243)")]
    Machine(u16),
    /// The file uses a floating-point calling convention.
    #[error("the image uses a floating-point ABI (flags {0:#x}); compile with -mabi=ilp32")]
    FloatAbi(u32),
    /// The file uses the 16-register base.
    #[error("the image is for RV32E (flags {0:#x}); compile with -march=rv32imac -mabi=ilp32")]
    Embedded(u32),
    /// The file has unknown flags.
    #[error("ELF flags {0:#x} hold bits that are not known; compile with -march=rv32imac -mabi=ilp32")]
    Flags(u32),
    /// A segment requires a dynamic linker or thread-local storage.
    #[error("program header of type {0} (2 = dynamic, 3 = interpreter, 7 = thread-local); link statically")]
    SegmentType(u32),
    /// The file has no LOAD segment.
    #[error("the image has nothing to load: no LOAD segment has any bytes")]
    NoSegments,
    /// The file has more LOAD segments than fit a view.
    #[error("more than {max} LOAD segments, of which those in L1 count for each cluster")]
    TooManySegments {
        /// Maximum number of segments.
        max: usize,
    },
    /// A segment extends beyond the end of the file.
    #[error("segment at {address:#010x}: bytes {offset}+{size} of a file of {file}")]
    BeyondFile {
        /// Address of the segment.
        address: u32,
        /// Offset of the segment in the file.
        offset: u32,
        /// Size in the file, in bytes.
        size: u32,
        /// Length of the file.
        file: usize,
    },
    /// A segment is larger in the file than in memory.
    #[error("segment at {address:#010x}: {file} bytes in the file, only {memory} in memory")]
    FileAboveMemory {
        /// Address of the segment.
        address: u32,
        /// Size in the file, in bytes.
        file: u32,
        /// Size in memory, in bytes.
        memory: u32,
    },
    /// A segment extends beyond the end of the address space.
    #[error("segment at {address:#010x}, {size} bytes long, ends beyond the address space")]
    Wraps {
        /// Address of the segment.
        address: u32,
        /// Size in memory, in bytes.
        size: u32,
    },
    /// A segment is writable and executable.
    #[error("segment at {address:#010x} is writable and executable; handlers must not change code")]
    WritableCode {
        /// Address of the segment.
        address: u32,
    },
    /// A segment is neither readable nor writable nor executable.
    #[error("segment at {address:#010x} has no permissions")]
    NoPermission {
        /// Address of the segment.
        address: u32,
    },
    /// A segment lies outside the memories that may hold it.
    #[error("{access} segment at {address:#010x}, {size} bytes long, is not within {allowed}")]
    Outside {
        /// Access permissions of the segment.
        access: &'static str,
        /// Address of the segment.
        address: u32,
        /// Size in memory, in bytes.
        size: u32,
        /// Memories that may hold the segment.
        allowed: String,
    },
    /// Code or constants do not fit in program memory, but would if it were larger.
    #[error(
        "the image has {bytes} bytes of code and constants; program memory has {has}: \
         add \"program_size = {needed:#x}\" to [machine] in spind's configuration"
    )]
    TooMuchCode {
        /// Bytes from the start of program memory to the end of the image's last segment there.
        bytes: u32,
        /// Size of program memory in bytes.
        has: u32,
        /// Size that suffices.
        needed: u32,
    },
    /// Two segments overlap.
    #[error("segment at {address:#010x} overlaps the one at {other:#010x}, {size} bytes long")]
    Overlap {
        /// Address of the upper segment.
        address: u32,
        /// Address of the lower segment.
        other: u32,
        /// Size of the lower segment in bytes.
        size: u32,
    },
    /// A code segment begins at an odd address.
    #[error("executable segment at {address:#010x}: code begins at even addresses")]
    OddCode {
        /// Address of the segment.
        address: u32,
    },
    /// The file has no executable segment.
    #[error("the image has no executable segment")]
    NoCode,
    /// The entry point is not executable.
    #[error("entry point {entry:#010x} is not an even address in an executable segment (0 means none)")]
    Entry {
        /// Address of the entry point.
        entry: u32,
    },
    /// The symbol table is too large.
    #[error(
        "{count} symbols, at most {max} are accepted; link with --discard-locals, as spin-cc does, or strip the image"
    )]
    TooManySymbols {
        /// Number of symbols.
        count: usize,
        /// Maximum number of symbols.
        max: usize,
    },
    /// A symbol's name does not lie in the string table, or is not terminated there.
    #[error("symbol {index}: its name, at offset {offset}, does not end in the string table of {table} bytes")]
    SymbolName {
        /// Index in the symbol table.
        index: usize,
        /// Offset of the name.
        offset: u32,
        /// Size of the string table in bytes.
        table: usize,
    },
    /// A handler is not executable.
    #[error("{name} at {address:#010x} is not an even address in an executable segment")]
    Handler {
        /// Symbol of the handler.
        name: &'static str,
        /// Value of the symbol.
        address: u32,
    },
}
