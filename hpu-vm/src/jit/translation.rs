//! From an image to machine code.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;

use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{CompiledCode, Context, control::ControlPlane};
use cranelift_frontend::FunctionBuilderContext;
use spin_abi::map::PAGE;

use super::code_memory::{CodeMemory, CodeMemoryError};
use super::emit::{self, Input, Made};
use super::entry::{ColdLayout, Entry, EntryLayout};
use super::facts::{Facts, Regs};
use super::in_place;
use super::options::Options;
use super::part::{Aside, Part};
use super::pc_map::{self, PcMap};
use super::plan::{BlockId, Plan, Side};
use super::polls;
use crate::code::{Code, CodeSegment};
use crate::inst::Reg;

/// Where the last page of addresses begins.
const LAST_PAGE: u32 = PAGE.wrapping_neg();

/// Most loops around an instruction.
const MAX_LOOPS: usize = 40;

/// Functions begin at cache lines.
const ALIGNMENT: usize = 64;

/// Reason why an image was not translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
    /// Code cannot be generated for this machine.
    #[error("no code can be generated for this machine: {0}")]
    Host(String),
    /// Cranelift refused the function.
    #[error("translating the code at {entry:#010x}: {reason}")]
    Code {
        /// Address of the handler's first instruction.
        entry: u32,
        /// Error text.
        reason: String,
    },
    /// Executable memory cannot be allocated.
    #[error(transparent)]
    Memory(#[from] CodeMemoryError),
}

/// Machine code for handlers of an image. Threads may share it.
#[derive(Debug)]
pub struct Translation {
    /// Owned: what the entries are in.
    _memory: CodeMemory,
    /// Guest and host address of each handler.
    entries: Vec<(u32, Entry)>,
    options: Options,
    size: Size,
    needs_registers: bool,
    waits: bool,
    copies: bool,
}

/// Size of a translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Guest instructions, including copies for inlined calls.
    pub instructions: usize,
    /// Bytes of host code.
    pub bytes: usize,
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

impl Translation {
    /// Translates `source` for this machine.
    ///
    /// # Errors
    /// See [`TranslateError`].
    pub fn new(source: Source<'_>, options: Options) -> Result<Self, TranslateError> {
        let mut compiler = Compiler::new(host()?);
        let mut code = Vec::new();
        let mut map = PcMap::new();
        let (mut size, mut needs_registers) = (Size::default(), options.observe);
        let mut places = Vec::new();
        let entries: BTreeSet<u32> = source.entries.iter().copied().collect();
        for &entry in &entries {
            let planned = Planned::new(source, entry, options)?;
            size.instructions += planned.plan.instructions;
            needs_registers |= emit::in_memory(&planned.plan, options);
            places.push((entry, compiler.append(source, &planned, options, &mut code, &mut map)?));
        }
        size.bytes = code.len();
        let waits = map.has_waits();
        let memory = CodeMemory::new(&code, map)?;
        let entries = places.into_iter().map(|(entry, layout)| (entry, Entry::new(&memory, layout))).collect();
        Ok(Self { _memory: memory, entries, options, size, needs_registers, waits, copies: compiler.copies })
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
        let isa = cranelift_codegen::isa::lookup_by_name(triple).map_err(refused)?.finish(flags()?).map_err(refused)?;
        let mut compiler = Compiler::new(&*isa);
        compiler.words = true;
        let planned = Planned::new(source, entry, options)?;
        compiler.append(source, &planned, options, &mut Vec::new(), &mut PcMap::new())?;
        Ok(compiler.said)
    }

    /// The host code of the handler at `entry`.
    #[inline]
    pub(crate) fn entry(&self, entry: u32) -> Option<&Entry> {
        self.entries.iter().find(|(guest, _)| *guest == entry).map(|(_, host)| host)
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

    /// Whether the hart has to hold all registers when a task begins.
    #[inline]
    pub(crate) const fn needs_registers(&self) -> bool {
        self.needs_registers
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

/// What there is to translate for a handler.
struct Planned {
    entry: u32,
    plan: Plan,
    facts: Facts,
    /// The loops that wait.
    loops: Vec<RangeInclusive<BlockId>>,
    /// See [`in_place::bytes_read`].
    in_place: Option<u32>,
}

impl Planned {
    fn new(source: Source<'_>, entry: u32, options: Options) -> Result<Self, TranslateError> {
        if let Some(reason) = cannot_be_located(source.code, entry) {
            return Err(TranslateError::Code { entry, reason: reason.to_owned() });
        }
        let mut plan = Plan::new(source.code, entry, source.taken);
        let results = if options.result { Regs(0).with(Reg::A0) } else { Regs(0) };
        let facts = Facts::new(&mut plan, results, source.code.global_pointer());
        let loops = polls::loops(&plan, &facts);
        let in_place = in_place::bytes_read(&plan, &facts, options);
        Ok(Self { entry, plan, facts, loops, in_place })
    }

    /// How many bytes of the packet in L1 are likely to be read where it arrived, if that also makes copies of so many.
    fn bytes_read(&self, copies: u32) -> u32 {
        self.in_place.unwrap_or(0).max(copies)
    }
}

struct Compiler<'i> {
    isa: &'i dyn TargetIsa,
    frontend: FunctionBuilderContext,
    context: Context,
    /// Something that was compiled makes [copies](Made::copies).
    copies: bool,
    /// The code is wanted in words too,
    words: bool,
    /// which are these.
    said: String,
}

impl<'i> Compiler<'i> {
    fn new(isa: &'i dyn TargetIsa) -> Self {
        Self {
            isa,
            frontend: FunctionBuilderContext::new(),
            context: Context::new(),
            copies: false,
            words: false,
            said: String::new(),
        }
    }

    /// Compiles into `self.context` a part of what is planned.
    fn compile(
        &mut self,
        code: &Code,
        planned: &Planned,
        options: Options,
        part: Part<'_>,
    ) -> Result<Made, TranslateError> {
        let made = self.compile_once(code, planned, options, part, false)?;
        if self.has_fault_return() {
            return Ok(made);
        }
        self.compile_once(code, planned, options, part, true)
    }

    /// Whether the function that was compiled last can be stopped.
    fn has_fault_return(&self) -> bool {
        let compiled = self.context.compiled_code();
        compiled.is_some_and(|compiled| pc_map::has_fault_return(spans(compiled)))
    }

    fn compile_once(
        &mut self,
        code: &Code,
        planned: &Planned,
        options: Options,
        part: Part<'_>,
        doubted: bool,
    ) -> Result<Made, TranslateError> {
        let refused = |reason: String| TranslateError::Code { entry: planned.entry, reason };
        self.context.clear();
        self.context.set_disasm(self.words);
        // Images are hostile input to a large library; a mistake in it must not take others down.
        let compiled = panic::catch_unwind(AssertUnwindSafe(|| {
            let &Planned { ref plan, ref facts, ref loops, in_place, .. } = planned;
            let input = Input { code, plan, facts, options, loops, part, doubted, in_place };
            let made = emit::function(self.isa, input, &mut self.frontend);
            let mut made =
                made.ok_or("it would take too much code; with less inlining (-O2, -Os, noinline) it takes less")?;
            self.copies |= made.copies > 0;
            std::mem::swap(&mut self.context.func, &mut made.function);
            if self.loops_are_too_deep()? {
                return Err("its loops are nested too deep".to_owned());
            }
            let compiled = self.context.compile(self.isa, &mut ControlPlane::default());
            compiled.map(|_| made).map_err(|error| format!("{:?}", error.inner))
        }));
        let compiled = compiled.unwrap_or_else(|_| Err("the code generator failed".to_owned()));
        if compiled.is_err() {
            // A function may be left unfinished there.
            self.frontend = FunctionBuilderContext::new();
        }
        compiled.map_err(refused)
    }

    /// Whether optimising would take too long: for each value Cranelift looks at the loops around it, and at those around each of them
    /// (`egraph/elaborate.rs`).
    fn loops_are_too_deep(&mut self) -> Result<bool, String> {
        let context = &mut self.context;
        context.compute_cfg();
        context.compute_domtree();
        // The analysis need not end when there are blocks that nothing leads to.
        context.eliminate_unreachable_code(self.isa).map_err(|error| error.to_string())?;
        context.compute_loop_analysis();
        let level = |block| context.loop_analysis.loop_level(block).level();
        Ok(context.func.layout.blocks().any(|block| level(block) > MAX_LOOPS))
    }

    /// Compiles what is planned, as one function or two, and adds it to `code`.
    fn append(
        &mut self,
        source: Source<'_>,
        planned: &Planned,
        options: Options,
        code: &mut Vec<u8>,
        map: &mut PcMap,
    ) -> Result<EntryLayout, TranslateError> {
        let Planned { plan, loops, .. } = planned;
        let sides = if emit::splits(plan, options) { plan.sides() } else { None };
        // What would take too much code in two may not in one.
        let split = sides.and_then(|sides| self.append_split(source, planned, &sides, options, code, map));
        let placed = match split {
            Some(placed) => placed,
            None => {
                let Made { begins, exits, copies, .. } = self.compile(source.code, planned, options, Part::Whole)?;
                let offset = self.place(planned.entry, code, map)?;
                EntryLayout { offset, prologue: begins, exits, cold: None, in_place: planned.bytes_read(copies) }
            }
        };
        let blocks = loops.iter().cloned().flatten().map(|id| &plan.blocks[id]);
        map.push_wait_blocks(blocks.filter_map(|block| Some((block.start, block.body.last()?.0))));
        Ok(placed)
    }

    /// The same as two functions; `None`, and nothing is added, when that cannot be.
    fn append_split(
        &mut self,
        source: Source<'_>,
        planned: &Planned,
        sides: &[Side],
        options: Options,
        code: &mut Vec<u8>,
        map: &mut PcMap,
    ) -> Option<EntryLayout> {
        let (len, marked) = (code.len(), map.size());
        let mut made = || {
            let Made { begins, exits, resumes, copies, .. } =
                self.compile(source.code, planned, options, Part::Aside(sides))?;
            let (there, count) = (self.place(planned.entry, code, map)?, exits.len());
            let known = Aside { begins, exits, resumes };
            let made = self.compile(source.code, planned, options, Part::Rest(sides, &known))?;
            let offset = self.place(planned.entry, code, map)?;
            let cold = Some(ColdLayout { offset: there, prologue: known.begins, exits: count });
            let in_place = planned.bytes_read(copies.max(made.copies));
            Ok::<_, TranslateError>(EntryLayout { offset, prologue: made.begins, exits: made.exits, cold, in_place })
        };
        let placed = made().ok();
        if placed.is_none() {
            code.truncate(len);
            map.truncate(marked);
        }
        placed
    }

    /// Adds what was compiled last to `code`. Returns where it is.
    fn place(&mut self, entry: u32, code: &mut Vec<u8>, map: &mut PcMap) -> Result<usize, TranslateError> {
        let refused = |reason: &str| TranslateError::Code { entry, reason: reason.to_owned() };
        code.resize(code.len().next_multiple_of(ALIGNMENT), 0);
        let at = code.len();
        let compiled = self.context.compiled_code().ok_or_else(|| refused("no code was made"))?;
        if !compiled.buffer.relocs().is_empty() {
            return Err(refused("it needs functions of the host"));
        }
        let bytes = compiled.code_buffer();
        let fits = |offset: usize| u32::try_from(offset).map_err(|_| refused("it is too large"));
        let (start, len) = (fits(at)?, fits(bytes.len())?);
        map.push_function(start, len, spans(compiled)).ok_or_else(|| refused("it has no fault return"))?;
        code.extend_from_slice(bytes);
        self.said.extend(compiled.vcode.as_deref());
        Ok(at)
    }
}

/// Which locations parts of a function have: start, end, location.
fn spans(compiled: &CompiledCode) -> impl Iterator<Item = (u32, u32, u32)> + '_ {
    compiled.buffer.get_srclocs_sorted().iter().map(|span| (span.start, span.end, span.loc.bits()))
}

/// Why instructions cannot be named by their addresses and the bit below: some in the last page stand for parts of
/// functions. Never the case of images, whose code lies in program memory.
fn cannot_be_located(code: &Code, entry: u32) -> Option<&'static str> {
    let last = |segment: &CodeSegment| u64::from(segment.base) + segment.bytes.len() as u64 > u64::from(LAST_PAGE);
    if entry & 1 != 0 {
        Some("the address is odd")
    } else if code.segments().iter().any(last) {
        Some("there is code in the last page of addresses")
    } else {
        None
    }
}

fn refused(reason: impl ToString) -> TranslateError {
    TranslateError::Host(reason.to_string())
}

fn flags() -> Result<settings::Flags, TranslateError> {
    let mut builder = settings::builder();
    let set = [
        ("opt_level", "speed"),
        ("enable_verifier", "false"),
        // Frames of large functions are larger than the guard page of the thread's stack.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        ("unwind_info", "false"),
    ];
    for (name, value) in set {
        builder.set(name, value).map_err(|error| refused(format!("{name}: {error}")))?;
    }
    Ok(settings::Flags::new(builder))
}

/// This machine.
fn host() -> Result<&'static dyn TargetIsa, TranslateError> {
    static HOST: OnceLock<Result<OwnedTargetIsa, TranslateError>> = OnceLock::new();
    let isa = || cranelift_native::builder().map_err(refused)?.finish(flags()?).map_err(refused);
    HOST.get_or_init(isa).as_ref().map(|isa| &**isa).map_err(Clone::clone)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Options, Source, TranslateError, Translation};
    use crate::code::Code;
    use crate::jit::code_memory::lookup;
    use crate::view::Checks;

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

    /// What it does mostly cannot fault, and has nothing to be gone on with.
    #[test]
    fn a_handler_that_waits_in_the_other_part_alone_is_in_two() {
        // beqz a0, .+8; j .+8; ret
        // lui a2, 0x1000; c.lw a3, 0(a2); c.beqz a3, .-2; ret
        let words: [u16; 12] = [0x0463, 0x0005, 0x006f, 0x0080, 0x8067, 0, 0x0637, 0x0100, 0x4214, 0xdefd, 0x8082, 0];
        let (base, taken) = (0x1d00_0000, BTreeSet::new());
        let code = Code::at(base, &words.map(u16::to_le_bytes).concat()).with_functions([base, base + 12].into_iter());
        let source = Source { code: &code, entries: &[base], taken: &taken };
        let translation = Translation::new(source, Options { checks: Checks::Page, ..Options::default() });
        let translation = translation.expect("it is fine");
        assert!(translation.entry(base).is_some_and(|entry| !entry.cold_code().is_null()));
    }

    #[test]
    fn the_clock_can_tell_loops_that_wait() {
        // c.lw a1, 0(a0); c.beqz a1, .-2; c.addi a0, -1; c.bnez a0, .-2; ret
        let words: [u16; 5] = [0x410c, 0xddfd, 0x157d, 0xfd7d, 0x8082];
        let (base, taken) = (0x1d00_0000, BTreeSet::new());
        let code = Code::at(base, &words.map(u16::to_le_bytes).concat());
        let source = Source { code: &code, entries: &[base], taken: &taken };
        let translation = Translation::new(source, Options::default()).expect("it is fine");
        let address = |offset| translation._memory.function(offset) as usize;
        let sites = (0..translation.size().bytes).filter_map(|offset| lookup(address(offset)));
        let found: BTreeSet<_> = sites.filter(|site| site.body).map(|site| (site.pc - base, site.waits)).collect();
        assert!(found.contains(&(0, true)) && found.contains(&(6, false)), "{found:?}");
        assert!(found.iter().all(|&(at, waits)| waits == (at < 4)), "{found:?}");
    }
}
