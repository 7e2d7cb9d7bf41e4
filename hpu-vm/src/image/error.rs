//! Why an image is refused.

/// A reason to refuse an image. Each says what was found and what would have been accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The ELF magic is missing.
    #[error("not an ELF file: it begins with {0:02x?}; compile handlers with spin-cc")]
    NotElf(Vec<u8>),
    /// A header or table lies outside the file or has the wrong shape.
    #[error("damaged ELF file: {what} ({detail}); the file has {file} bytes")]
    Damaged {
        /// The part that was read.
        what: &'static str,
        /// What the reader found.
        detail: object::read::Error,
        /// Length of the file.
        file: usize,
    },
    /// Not ELFCLASS32.
    #[error("ELF class {0} (2 = 64-bit); HPUs are 32-bit: compile for riscv32")]
    Class(u8),
    /// Not little-endian.
    #[error("ELF data encoding {0} (2 = big-endian); HPUs are little-endian")]
    Encoding(u8),
    /// An ELF version other than 1.
    #[error("ELF version {0}; only version 1 exists")]
    Version(u32),
    /// Not ET_EXEC.
    #[error(
        "ELF type {0} (1 = object, 3 = shared or position-independent); link a static executable (-static -no-pie)"
    )]
    Type(u16),
    /// Not EM_RISCV.
    #[error("ELF machine {0}; HPUs are RISC-V (243)")]
    Machine(u16),
    /// A floating-point calling convention.
    #[error("the image uses a floating-point ABI (flags {0:#x}); compile with -mabi=ilp32")]
    FloatAbi(u32),
    /// The 16-register base.
    #[error("the image is for RV32E (flags {0:#x}); compile with -march=rv32imac -mabi=ilp32")]
    Embedded(u32),
    /// Flags that are not known.
    #[error("ELF flags {0:#x} hold bits that are not known; compile with -march=rv32imac -mabi=ilp32")]
    Flags(u32),
    /// A segment that asks for a dynamic linker or thread-local storage.
    #[error("program header of type {0} (2 = dynamic, 3 = interpreter, 7 = thread-local); link statically")]
    SegmentType(u32),
    /// Nothing to load.
    #[error("the image has nothing to load: no LOAD segment has any bytes")]
    NoSegments,
    /// More LOAD segments than a view has room for.
    #[error("more than {max} LOAD segments, of which those in L1 count for each cluster")]
    TooManySegments {
        /// Most that are accepted.
        max: usize,
    },
    /// A segment's bytes are not all in the file.
    #[error("segment at {address:#010x}: bytes {offset}+{size} of a file of {file}")]
    BeyondFile {
        /// Address of the segment.
        address: u32,
        /// Its offset in the file.
        offset: u32,
        /// Its bytes in the file.
        size: u32,
        /// Length of the file.
        file: usize,
    },
    /// More bytes in the file than in memory.
    #[error("segment at {address:#010x}: {file} bytes in the file, only {memory} in memory")]
    FileAboveMemory {
        /// Address of the segment.
        address: u32,
        /// Its bytes in the file.
        file: u32,
        /// Its bytes in memory.
        memory: u32,
    },
    /// A segment passes the end of the address space.
    #[error("segment at {address:#010x}, {size} bytes long, ends beyond the address space")]
    Wraps {
        /// Address of the segment.
        address: u32,
        /// Its bytes in memory.
        size: u32,
    },
    /// Writable and executable.
    #[error("segment at {address:#010x} is writable and executable; handlers must not change code")]
    WritableCode {
        /// Address of the segment.
        address: u32,
    },
    /// Neither readable nor writable nor executable.
    #[error("segment at {address:#010x} has no permissions")]
    NoPermission {
        /// Address of the segment.
        address: u32,
    },
    /// Not in a memory that may hold such a segment.
    #[error("{access} segment at {address:#010x}, {size} bytes long, is not within {allowed}")]
    Outside {
        /// What kind of segment it is.
        access: &'static str,
        /// Address of the segment.
        address: u32,
        /// Its bytes in memory.
        size: u32,
        /// The memories it may be in.
        allowed: String,
    },
    /// Two segments share bytes.
    #[error("segment at {address:#010x} overlaps the one at {other:#010x}, {size} bytes long")]
    Overlap {
        /// The upper segment.
        address: u32,
        /// The lower one.
        other: u32,
        /// Bytes of the lower one.
        size: u32,
    },
    /// Code at an odd address.
    #[error("executable segment at {address:#010x}: code begins at even addresses")]
    OddCode {
        /// Address of the segment.
        address: u32,
    },
    /// No executable segment.
    #[error("the image has no executable segment")]
    NoCode,
    /// The entry point cannot be executed.
    #[error("entry point {entry:#010x} is not an even address in an executable segment (0 means none)")]
    Entry {
        /// The entry point.
        entry: u32,
    },
    /// A symbol table beyond all reason.
    #[error("{count} symbols, at most {max} are accepted; strip the image (--strip-debug)")]
    TooManySymbols {
        /// Symbols in the table.
        count: usize,
        /// Most that are accepted.
        max: usize,
    },
    /// A symbol's name does not lie in the string table, or does not end there.
    #[error("symbol {index}: its name, at offset {offset}, does not end in the string table of {table} bytes")]
    SymbolName {
        /// Index in the symbol table.
        index: usize,
        /// Offset of its name.
        offset: u32,
        /// Bytes of the string table.
        table: usize,
    },
    /// A handler that cannot be executed.
    #[error("{name} at {address:#010x} is not an even address in an executable segment")]
    Handler {
        /// The symbol.
        name: &'static str,
        /// Its value.
        address: u32,
    },
    /// Nothing to run.
    #[error("the image defines none of header_handler, payload_handler, completion_handler and init_handlers")]
    NoHandlers,
}
