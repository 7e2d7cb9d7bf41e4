//! From an image to machine code.
//!
//! Each handler is translated with all that it calls, as far as that is not too much code. What it leaves out is
//! translated as [shared regions](crate::analysis::cfg), once for all handlers: execution continues there when a handler's code is
//! left. The interpreter executes what is in no region.

use std::collections::BTreeSet;

use spin_abi::map::PAGE;

use super::code_memory::CodeMemory;
use super::compiler::{self, Compiler};
use super::entry::{Entry, EntryLayout};
use super::entry_points::{EntryPoints, Point};
use super::error::TranslateError;
use super::options::Options;
use super::passes::reads_counters;
use crate::analysis::cfg::{self, Cfg, Cost, Functions, Regions, Scope};
use crate::analysis::dataflow::Begin;
use crate::analysis::regs::Regs;
use crate::code::{Code, CodeSegment};
use crate::view::Checks;

/// Start of the last page of addresses.
const LAST_PAGE: u32 = PAGE.wrapping_neg();

/// Machine code for handlers of an image. Threads may share it.
#[derive(Debug)]
pub struct Translation {
    /// Code of the entries.
    memory: CodeMemory,
    /// Guest address and code of each handler.
    handlers: Vec<(u32, Entry)>,
    shared: SharedCode,
    untranslated: Vec<Untranslated>,
    options: Options,
    size: Size,
    waits: bool,
    copies: bool,
}

/// Code that the interpreter executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untranslated {
    /// Address of the function's first instruction, or of the first one in this part of it.
    pub address: u32,
    /// Error text.
    pub reason: String,
}

/// Size of a translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Guest instructions, including copies for inlined calls.
    pub instructions: usize,
    /// Bytes of host code.
    pub bytes: usize,
}

/// A host function of a translation: the code of a handler, or of a shared region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFunction {
    /// Host address of its first byte.
    pub address: usize,
    /// Length in bytes.
    pub len: usize,
    /// Guest address of a handler's first instruction, or of the first one at which a shared region is entered.
    pub guest: u32,
    /// Whether it is a handler's code. That includes the functions that the handler calls, unless they are shared.
    pub is_handler: bool,
}

/// Input of a translation.
#[derive(Clone, Copy, Debug)]
pub struct Source<'c> {
    /// Decoded code of the image.
    pub code: &'c Code,
    /// Addresses of the handlers' first instructions.
    pub entries: &'c [u32],
    /// Code addresses contained in the image's data: possible targets of computed jumps.
    pub taken: &'c BTreeSet<u32>,
}

/// The shared regions of a translation.
#[derive(Debug, Default)]
pub(crate) struct SharedCode {
    regions: Vec<Entry>,
    /// Guest addresses at which regions are entered.
    points: EntryPoints,
}

impl SharedCode {
    /// The point at `pc`.
    pub(crate) fn find(&self, pc: u32) -> Option<Point> {
        self.points.find(pc)
    }

    /// First address at which a region is entered.
    fn start(&self, region: usize) -> u32 {
        self.points.first_of(region).unwrap_or(0)
    }

    /// Code of a region.
    pub(crate) fn region(&self, region: u32) -> Option<&Entry> {
        self.regions.get(region as usize)
    }
}

impl Translation {
    /// Translates `source` for this machine.
    ///
    /// # Errors
    /// See [`TranslateError`]. Code that cannot be translated beside a handler is no error: see
    /// [`Translation::untranslated`].
    pub fn new(source: Source<'_>, options: Options) -> Result<Self, TranslateError> {
        let mut compiler = Compiler::new(compiler::host()?, options);
        let Layouts { handlers, regions, points, untranslated } = translate(source, options, &mut compiler)?;
        let size = Size { instructions: compiler.instructions, bytes: compiler.code.len() };
        let waits = compiler.map.has_waits();
        let copies = compiler.copies;
        let memory = CodeMemory::new(&compiler.code, compiler.map)?;
        let handlers = handlers.into_iter().map(|(pc, layout)| (pc, Entry::new(&memory, layout))).collect();
        let regions = regions.into_iter().map(|layout| Entry::new(&memory, layout)).collect();
        let shared = SharedCode { regions, points: EntryPoints::new(points) };
        Ok(Self { memory, handlers, shared, untranslated, options, size, waits, copies })
    }

    /// Returns Cranelift's disassembly of the handler at `entry` for the machine that `triple` names, for inspection.
    ///
    /// # Errors
    /// See [`TranslateError`].
    pub fn disassemble(
        source: Source<'_>,
        entry: u32,
        options: Options,
        triple: &str,
    ) -> Result<String, TranslateError> {
        let isa = compiler::target(triple)?;
        let mut compiler = Compiler::new(&*isa, options);
        compiler.disassembly = Some(String::new());
        translate(Source { entries: &[entry], ..source }, options, &mut compiler)?;
        Ok(compiler.disassembly.unwrap_or_default())
    }

    /// The code of the handler at `entry`. `None` when it is not translated, or only as a shared region.
    #[inline]
    pub(crate) fn handler(&self, entry: u32) -> Option<&Entry> {
        self.handlers.iter().find(|(guest, _)| *guest == entry).map(|(_, host)| host)
    }

    /// The code that continues where other code is left.
    pub(crate) const fn shared(&self) -> &SharedCode {
        &self.shared
    }

    /// Returns the host functions, for profilers. They are valid while the translation lives.
    pub fn functions(&self) -> impl Iterator<Item = HostFunction> + '_ {
        let handlers = self.handlers.iter().map(|(guest, _)| (*guest, true));
        let regions = (0..self.shared.regions.len()).map(|region| (self.shared.start(region), false));
        // Handlers are compiled first.
        let functions = self.memory.map().functions().zip(handlers.chain(regions));
        functions.map(|((address, len), (guest, is_handler))| HostFunction { address, len, guest, is_handler })
    }

    /// Returns the code that is left to the interpreter.
    #[must_use]
    pub fn untranslated(&self) -> &[Untranslated] {
        &self.untranslated
    }

    /// Whether there are loops that wait.
    #[inline]
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.waits
    }

    /// Whether there may be copies that the device is told of [later](super::host_copy).
    #[inline]
    pub(crate) const fn copies(&self) -> bool {
        self.copies
    }

    /// Returns the options of the translation.
    #[must_use]
    pub const fn options(&self) -> Options {
        self.options
    }

    /// Returns the size of the translation.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }
}

/// Offsets and tables of what was compiled.
#[derive(Default)]
struct Layouts {
    handlers: Vec<(u32, EntryLayout)>,
    regions: Vec<EntryLayout>,
    points: Vec<Point>,
    untranslated: Vec<Untranslated>,
}

fn translate(source: Source<'_>, options: Options, compiler: &mut Compiler<'_>) -> Result<Layouts, TranslateError> {
    let Source { code, taken, .. } = source;
    let entries: BTreeSet<u32> = source.entries.iter().copied().collect();
    for &entry in &entries {
        if let Some(reason) = unnameable(code, entry) {
            return Err(TranslateError::Code { entry, reason: reason.to_owned() });
        }
    }
    let cost = cost_of(options);
    let functions = Functions::new(code, source.entries, taken);
    let mut layouts = Layouts::default();
    let (mut exits, mut refused, mut device) = (BTreeSet::new(), Vec::new(), Regs(0));
    let mut has_counters = false;
    for &entry in &entries {
        let mut graph = cfg::handler(Scope { code, functions: &functions, taken, cost, parts_cold: true }, entry);
        let facts = compiler.analyse(&mut graph, &Begin::Task { global_pointer: code.global_pointer() });
        has_counters |= reads_counters(&graph);
        match compiler.add(code, &graph, &facts) {
            Ok(layout) => {
                layouts.handlers.push((entry, layout));
                device = device.or(facts.devices_outside(&graph));
                exits.append(&mut graph.exits);
            }
            // Its functions may be translated one by one.
            Err(reason) => {
                exits.insert(entry);
                refused.push(TranslateError::Code { entry, reason });
            }
        }
    }
    let Regions { functions, regions } = Regions::new(code, functions, &exits, taken, cost);
    let scope = Scope { code, functions: &functions, taken, cost, parts_cold: true };
    let mut graphs: Vec<Cfg> = regions.iter().map(|region| cfg::shared(scope, region)).collect();
    // What is executed between two readings of a counter counts, wherever it is.
    if has_counters || graphs.iter().any(reads_counters) {
        compiler.count_all();
    }
    let device = devices_between(&mut graphs, compiler, device);
    for (region, mut graph) in regions.iter().zip(graphs) {
        let facts = compiler.analyse(&mut graph, &Begin::Points { device });
        match compiler.add(code, &graph, &facts) {
            Ok(layout) => layouts.add_region(layout, &graph),
            Err(reason) => layouts.untranslated.push(Untranslated { address: region.extent.start, reason }),
        }
    }
    layouts.points.sort_unstable_by_key(|point| point.pc);
    // A handler that is interpreted as a whole is not translated.
    let is_lost = |entry: &u32| layouts.points.binary_search_by_key(entry, |point| point.pc).is_err();
    match refused.into_iter().find(|error| matches!(error, TranslateError::Code { entry, .. } if is_lost(entry))) {
        Some(error) => Err(error),
        None => Ok(layouts),
    }
}

/// Registers that hold the addresses of devices where execution goes from one region to another. `device` do where handlers
/// are left.
fn devices_between(graphs: &mut [Cfg], compiler: &Compiler<'_>, device: Regs) -> Regs {
    graphs.iter_mut().fold(device, |device, graph| {
        let facts = compiler.analyse(graph, &Begin::Points { device });
        device.or(facts.devices_outside(graph))
    })
}

impl Layouts {
    fn add_region(&mut self, layout: EntryLayout, graph: &Cfg) {
        // A region has fewer points than a u32 has numbers.
        let region = u32::try_from(self.regions.len()).unwrap_or(u32::MAX);
        let points =
            (1..).zip(graph.points()).map(|(resume, &id)| Point { pc: graph.blocks[id].start, region, resume });
        self.points.extend(points);
        self.regions.push(layout);
    }
}

/// What accesses cost with these options: checks are blocks of their own.
fn cost_of(options: Options) -> Cost {
    let access = match options.checks {
        _ if options.any_device => 8,
        Checks::Exact => 4,
        Checks::Page => 1,
    };
    Cost { access }
}

/// Why instructions cannot be named by their addresses and the bit below: some in the last page stand for parts of
/// functions. Never the case of images, whose code lies in program memory.
fn unnameable(code: &Code, entry: u32) -> Option<&'static str> {
    let last = |segment: &CodeSegment| u64::from(segment.base) + segment.bytes.len() as u64 > u64::from(LAST_PAGE);
    if entry & 1 != 0 {
        Some("the address is odd")
    } else if code.segments().iter().any(last) {
        Some("there is code in the last page of addresses")
    } else {
        None
    }
}
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{HostFunction, Options, Source, TranslateError, Translation};
    use crate::code::Code;
    use crate::jit::code_memory::lookup;

    #[test]
    fn instructions_that_their_addresses_cannot_name_are_refused() {
        // c.lw a0, 0(a0); ret
        let bytes = [0x08, 0x41, 0x82, 0x80];
        let places = [
            (0x1d00_0000, 0, true),
            (0x1d00_0000, 1, false),
            (0xffff_effc, 0, true),
            (0xffff_effe, 0, false),
            (0xffff_fffc, 2, false),
        ];
        for (base, at, allowed) in places {
            let (code, taken) = (Code::at(base, &bytes), BTreeSet::new());
            let source = Source { code: &code, entries: &[base + at], taken: &taken };
            let made = Translation::new(source, Options::default());
            match made {
                Ok(_) => assert!(allowed, "{base:#x}, {at}"),
                Err(TranslateError::Code { entry, .. }) => assert_eq!((entry, allowed), (base + at, false)),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn functions_are_those_of_handlers_and_of_shared_code() {
        // c.addi a0, 1; c.j .+2; a function that is rarely called: ret
        let words: [u16; 3] = [0x0505, 0xa009, 0x8082];
        let (base, taken) = (0x1d00_0000, BTreeSet::new());
        let code = Code::at(base, &words.map(u16::to_le_bytes).concat()).with_functions([base, base + 4].into_iter());
        let code = code.with_cold(std::iter::once(base + 4..base + 6));
        let source = Source { code: &code, entries: &[base], taken: &taken };
        let translation = Translation::new(source, Options::default()).expect("it is fine");
        let functions: Vec<_> = translation.functions().collect();
        let guests: Vec<_> = functions.iter().map(|function| (function.guest, function.is_handler)).collect();
        assert_eq!(guests, [(base, true), (base + 4, false)]);
        assert!(functions[0].address + functions[0].len <= functions[1].address, "{functions:x?}");
        for HostFunction { address, len, .. } in functions {
            for at in [address, address + len - 1] {
                let site = lookup(at).expect("code");
                assert!((address..address + len).contains(&site.fault_return), "each function has one: {site:x?}");
            }
        }
    }

    #[test]
    fn the_clock_can_tell_loops_that_wait() {
        // c.lw a1, 0(a0); c.beqz a1, .-2; c.addi a0, -1; c.bnez a0, .-2; ret
        let words: [u16; 5] = [0x410c, 0xddfd, 0x157d, 0xfd7d, 0x8082];
        let (base, taken) = (0x1d00_0000, BTreeSet::new());
        let code = Code::at(base, &words.map(u16::to_le_bytes).concat());
        let source = Source { code: &code, entries: &[base], taken: &taken };
        let translation = Translation::new(source, Options::default()).expect("it is fine");
        let address = |offset| translation.memory.function(offset) as usize;
        let sites = (0..translation.size().bytes).filter_map(|offset| lookup(address(offset)));
        let found: BTreeSet<_> = sites.filter(|site| site.body).map(|site| (site.pc - base, site.waits)).collect();
        assert!(found.contains(&(0, true)) && found.contains(&(6, false)), "{found:?}");
        assert!(found.iter().all(|&(at, waits)| waits == (at < 4)), "{found:?}");
    }
}
