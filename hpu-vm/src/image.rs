//! Handler images: ELF executables, fully checked, laid out and decoded once.
//!
//! A file comes from an application and is untrusted. An image accepted by [`Image::load`] has all its bytes inside the
//! file and inside the machine's memories. It has no overlapping segments and no writable code, and its handlers begin
//! in its code. Memory is allocated after those checks, so it is bounded by the machine's memories.
//!
//! Contexts share an image; [`Image::instantiate`] makes the memory that they write.

mod elf;
mod error;

use std::collections::BTreeSet;

use spin_abi::map::{L1_STRIDE, Machine, PAGE};

pub use self::error::LoadError;
use crate::code::{Code, CodeSegment};
use crate::lines::{Line, Lines};
use crate::symbols::Symbols;
use crate::view::{Memory, Range, RegionKind, View, ViewError};
pub(crate) use elf::damaged;
use elf::{Access, Segment};

/// The symbol of the function by which upstream images declare their handlers.
const INIT_HANDLERS: &str = "init_handlers";

/// Kind of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Runs once, on the first packet, before all others.
    Header,
    /// Runs on every packet.
    Payload,
    /// Runs once, after all payload handlers have completed.
    Completion,
}

impl Kind {
    /// Every kind, in execution order.
    pub const ALL: [Self; 3] = [Self::Header, Self::Payload, Self::Completion];

    /// Returns the symbol that defines the handler in an image.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Header => "header_handler",
            Self::Payload => "payload_handler",
            Self::Completion => "completion_handler",
        }
    }
}

/// Data of an image.
#[derive(Clone, Debug)]
struct DataSegment {
    base: u32,
    kind: RegionKind,
    writable: bool,
    bytes: Box<[u8]>,
}

/// A loaded image. It is immutable and can be shared between threads.
#[derive(Clone, Debug)]
pub struct Image {
    code: Code,
    data: Box<[DataSegment]>,
    symbols: Symbols,
    lines: Lines,
    entry: Option<u32>,
    handlers: [Option<u32>; 3],
    init_handlers: Option<u32>,
    handler_mem_end: u32,
}

impl Image {
    /// Checks and loads an ELF file for `machine`.
    ///
    /// # Errors
    /// [`LoadError`]: the first reason found to refuse the file.
    pub fn load(elf: &[u8], machine: &Machine) -> Result<Self, LoadError> {
        let header = elf::header(elf)?;
        let segments = elf::segments(header, elf, machine)?;
        let code = code(&segments)?;
        let entry = Some(header.e_entry.get(object::LittleEndian)).filter(|&entry| entry != 0);
        if let Some(entry) = entry.filter(|&entry| !starts_code(&code, entry)) {
            return Err(LoadError::Entry { entry });
        }
        let symbols = Symbols::read(header, elf, &code)?;
        // GNU ld's symbol: the value of gp that relaxed code expects.
        let code = code.with_global_pointer(symbols.find("__global_pointer$").map_or(0, |symbol| symbol.address));
        let code = code.with_functions(symbols.functions()).with_cold(cold(&symbols).into_iter());
        let mut handlers = [None; 3];
        for (handler, kind) in handlers.iter_mut().zip(Kind::ALL) {
            *handler = function(&symbols, &code, kind.symbol())?;
        }
        let init_handlers = function(&symbols, &code, INIT_HANDLERS)?;
        let data = data(&segments, machine);
        if code.segments().len() + data.len() > elf::MAX_SEGMENTS {
            return Err(LoadError::TooManySegments { max: elf::MAX_SEGMENTS });
        }
        let lines = Lines::read(header, elf, &code);
        let handler_mem_end = handler_mem_end(&segments, machine);
        Ok(Self { code, data, symbols, lines, entry, handlers, init_handlers, handler_mem_end })
    }

    /// Returns the decoded code.
    #[must_use]
    pub const fn code(&self) -> &Code {
        &self.code
    }

    /// Returns the address of a handler; `None` when the image does not define its symbol.
    #[must_use]
    pub const fn handler(&self, kind: Kind) -> Option<u32> {
        self.handlers[kind as usize]
    }

    /// Returns the address of `init_handlers`, which upstream images define.
    #[must_use]
    pub const fn init_handlers(&self) -> Option<u32> {
        self.init_handlers
    }

    /// Returns the ELF entry point, unless it is zero.
    #[must_use]
    pub const fn entry(&self) -> Option<u32> {
        self.entry
    }

    /// Returns the value of a symbol; a global one is preferred to a local one of the same name.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<u32> {
        self.symbols.find(name).map(|symbol| symbol.address)
    }

    /// Returns the names of functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.symbols.functions().filter_map(|address| self.symbols.symbolize(address).map(|(name, _)| name))
    }

    /// Returns the size of a symbol in bytes, 0 when the image does not specify it. The symbol is chosen as by
    /// [`Image::symbol`].
    #[must_use]
    pub fn symbol_size(&self, name: &str) -> Option<u32> {
        self.symbols.find(name).map(|symbol| symbol.size)
    }

    /// Returns the size in bytes of the function that begins at `address`, 0 when the image does not specify it.
    #[must_use]
    pub fn function_size(&self, address: u32) -> u32 {
        let found = self.symbols.symbolize(address).filter(|(_, offset)| *offset == 0);
        found.and_then(|(name, _)| self.symbol_size(name)).unwrap_or(0)
    }

    /// Returns the function that contains `pc` and the offset in it, for reports.
    #[must_use]
    pub fn symbolize(&self, pc: u32) -> Option<(&str, u32)> {
        self.symbols.symbolize(pc)
    }

    /// Returns the source line of the instruction at `pc`, for reports; `None` when the image was built without `-g`.
    #[must_use]
    pub fn line(&self, pc: u32) -> Option<Line<'_>> {
        self.lines.find(pc).filter(|_| self.code.contains(pc))
    }

    /// Returns the handler's own source line into which the instruction at `pc` was inlined, for reports; `None` when
    /// [`Image::line`] is unknown or the handler's own already. Functions of the SDK's headers are inlined.
    #[must_use]
    pub fn inlined_at(&self, pc: u32) -> Option<Line<'_>> {
        self.lines.inlined_at(pc).filter(|_| self.code.contains(pc))
    }

    /// Returns the number of bytes of the image's own handler memory from `address` on; `None` when no segment contains
    /// the address.
    #[must_use]
    pub fn handler_mem_from(&self, address: u32) -> Option<u32> {
        let mut own = self.data.iter().filter(|segment| segment.kind == RegionKind::HandlerMemory);
        let rest = |segment: &DataSegment| {
            let len = u32::try_from(segment.bytes.len()).unwrap_or(u32::MAX);
            len.checked_sub(address.checked_sub(segment.base)?).filter(|&rest| rest > 0)
        };
        own.find_map(rest)
    }

    /// Returns the first free page of handler memory: above the image's own segments there, or its base.
    #[must_use]
    pub const fn handler_mem_end(&self) -> u32 {
        self.handler_mem_end
    }

    /// Returns code addresses that the image's data and code contain: possible targets of computed jumps, as far as can
    /// be determined. By its symbols, an image excludes its constants, which lie beside the code. Decoded as code they
    /// would contain calls into the middle of functions, which would divide these.
    #[must_use]
    pub fn addresses_taken(&self) -> BTreeSet<u32> {
        let mut taken =
            crate::analysis::cfg::addresses_taken(&self.code, self.data.iter().map(|segment| &*segment.bytes));
        taken.retain(|&address| self.symbols.may_be_code(address));
        taken
    }

    /// Returns every segment: base, kind, whether handlers may write it, and its initial contents. Code comes first,
    /// then data; both are sorted by address.
    pub fn segments(&self) -> impl Iterator<Item = (u32, RegionKind, bool, &[u8])> {
        let code = self.code.segments().iter().map(|code| (code.base, RegionKind::Code, false, &*code.bytes));
        let data = self.data.iter().map(|data| (data.base, data.kind, data.writable, &*data.bytes));
        code.chain(data)
    }

    /// Allocates the memory that the image's handlers may write, with its initial contents.
    #[must_use]
    pub fn instantiate(&self) -> ImageMemory {
        let writable = self.data.iter().filter(|segment| segment.writable);
        ImageMemory { segments: writable.cloned().collect() }
    }

    /// Adds code and read-only data, which all users of the image share, to a view.
    ///
    /// # Errors
    /// See [`ViewError`]; the view may then contain some of the ranges.
    pub fn map_into<'m>(&'m self, view: &mut View<'m>) -> Result<(), ViewError> {
        for CodeSegment { base, bytes } in self.code.segments() {
            view.push(Range { kind: RegionKind::Code, base: *base, memory: Memory::ReadOnly(bytes) })?;
        }
        for segment in self.data.iter().filter(|segment| !segment.writable) {
            let memory = Memory::ReadOnly(&segment.bytes);
            view.push(Range { kind: segment.kind, base: segment.base, memory })?;
        }
        Ok(())
    }
}

/// A copy of the writable segments of an image, for one owner.
#[derive(Clone, Debug)]
pub struct ImageMemory {
    segments: Box<[DataSegment]>,
}

impl ImageMemory {
    /// Adds the segments to a view: `.data` and `.bss` as [`RegionKind::Data`], static handler memory as
    /// [`RegionKind::HandlerMemory`].
    ///
    /// # Errors
    /// See [`ViewError`]; the view may then contain some of the ranges.
    pub fn map_into<'m>(&'m mut self, view: &mut View<'m>) -> Result<(), ViewError> {
        for segment in &mut self.segments {
            let memory = Memory::ReadWrite(&mut segment.bytes);
            view.push(Range { kind: segment.kind, base: segment.base, memory })?;
        }
        Ok(())
    }

    /// Returns the segments by address: base, kind and bytes.
    pub fn segments(&self) -> impl Iterator<Item = (u32, RegionKind, &[u8])> {
        self.segments.iter().map(|segment| (segment.base, segment.kind, &*segment.bytes))
    }
}

fn code(segments: &[Segment<'_>]) -> Result<Code, LoadError> {
    let executable = segments.iter().filter(|segment| segment.access == Access::Execute);
    let executable: Vec<CodeSegment> =
        executable.map(|segment| CodeSegment { base: segment.address, bytes: segment.filled() }).collect();
    if executable.is_empty() {
        return Err(LoadError::NoCode);
    }
    Ok(Code::new(executable))
}

/// Data segments by address. Each cluster has a copy of data in L1 (`.data_tiny_l1`).
fn data(segments: &[Segment<'_>], machine: &Machine) -> Box<[DataSegment]> {
    let data = segments.iter().filter(|segment| segment.access != Access::Execute);
    let copies = |segment: &Segment<'_>| if segment.kind == RegionKind::Scratchpad { machine.clusters } else { 1 };
    let all = data.flat_map(|segment| (0..copies(segment)).map(move |cluster| (segment, cluster)));
    let mut data: Vec<_> = all
        .map(|(segment, cluster)| DataSegment {
            base: segment.address + cluster * L1_STRIDE,
            kind: segment.kind,
            writable: segment.access == Access::Write,
            bytes: segment.filled(),
        })
        .collect();
    data.sort_by_key(|segment| segment.base);
    data.into()
}

/// Rarely executed code: the linker script of the SDK puts it between two symbols.
fn cold(symbols: &Symbols) -> Option<std::ops::Range<u32>> {
    let [start, end] = ["__spin_apart_start", "__spin_apart_end"].map(|name| symbols.find(name));
    Some(start?.address..end?.address).filter(|range| !range.is_empty())
}

fn starts_code(code: &Code, address: u32) -> bool {
    address.is_multiple_of(2) && code.contains(address)
}

/// Address of the function `name`, if the image has one.
fn function(symbols: &Symbols, code: &Code, name: &'static str) -> Result<Option<u32>, LoadError> {
    match symbols.find(name).map(|symbol| symbol.address) {
        Some(address) if !starts_code(code, address) => Err(LoadError::Handler { name, address }),
        found => Ok(found),
    }
}

fn handler_mem_end(segments: &[Segment<'_>], machine: &Machine) -> u32 {
    let own = segments.iter().filter(|segment| segment.kind == RegionKind::HandlerMemory);
    let ends = own.map(|segment| segment.address + (segment.size - 1));
    // The last byte, so that nothing overflows. Every segment lies below handler memory's end.
    let last = ends.max();
    let end = last.map_or(u64::from(machine.handler_mem_base), |last| u64::from(last) + 1);
    u32::try_from(end.next_multiple_of(u64::from(PAGE))).unwrap_or(u32::MAX - (PAGE - 1))
}
