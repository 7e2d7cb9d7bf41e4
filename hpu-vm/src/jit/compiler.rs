//! Compilation of regions with Cranelift.

use std::panic::{self, AssertUnwindSafe};
use std::sync::OnceLock;

use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{CompiledCode, Context, control::ControlPlane};
use cranelift_frontend::FunctionBuilderContext;

use super::emit::{self, Emitted, Input};
use super::entry::EntryLayout;
use super::error::TranslateError;
use super::options::Options;
use super::passes::Plan;
use super::pc_map::{self, PcMap};
use super::prologue::Prologue;
use crate::analysis::cfg::Cfg;
use crate::analysis::dataflow::{Begin, Dataflow};
use crate::analysis::regs::Regs;
use crate::code::Code;
use crate::inst::Reg;

/// Alignment of functions: they begin at cache lines.
const ALIGNMENT: usize = 64;

/// Compiles regions one after the other, and collects their code.
pub(super) struct Compiler<'i> {
    isa: &'i dyn TargetIsa,
    options: Options,
    frontend: FunctionBuilderContext,
    context: Context,
    /// Machine code of all functions.
    pub(super) code: Vec<u8>,
    /// Where the instructions are in it.
    pub(super) map: PcMap,
    /// Number of guest instructions, including copies of inlined functions.
    pub(super) instructions: usize,
    /// Some code makes [copies](Emitted::longest_copy) that the device is told of later.
    pub(super) copies: bool,
    /// Cranelift's disassembly, if it is wanted.
    pub(super) disassembly: Option<String>,
}

impl<'i> Compiler<'i> {
    pub(super) fn new(isa: &'i dyn TargetIsa, options: Options) -> Self {
        Self {
            isa,
            options,
            frontend: FunctionBuilderContext::new(),
            context: Context::new(),
            code: Vec::new(),
            map: PcMap::new(),
            instructions: 0,
            copies: false,
            disassembly: None,
        }
    }

    /// Finds out what is known about a region.
    pub(super) fn analyse(&self, cfg: &mut Cfg, begin: &Begin) -> Dataflow {
        let results = if self.options.result { Regs(0).with(Reg::A0) } else { Regs(0) };
        Dataflow::new(cfg, results, begin)
    }

    /// Has instructions counted in all regions that are added from now on.
    pub(super) const fn count_all(&mut self) {
        self.options.counting = true;
    }

    /// Compiles a region. On an error nothing is added to the code.
    pub(super) fn add(&mut self, code: &Code, cfg: &Cfg, facts: &Dataflow) -> Result<EntryLayout, String> {
        let plan = Plan::new(cfg, facts, self.options).ok_or("its loops are nested too deep")?;
        let input = Input {
            code,
            cfg,
            facts,
            plan: &plan,
            options: self.options,
            // x86-64 has total store order.
            stores_in_order: self.isa.name() == "x64",
            forces_exit: false,
        };
        let Emitted { prologue, exits, longest_copy, .. } = self.compile(input)?;
        let offset = self.place()?;
        self.map.push_wait_blocks(plan.spinning.iter().copied());
        self.instructions += cfg.instructions;
        self.copies |= longest_copy > 0;
        let prologue = if cfg.begins_task() { prologue } else { Prologue::DONE };
        Ok(EntryLayout { offset, prologue, exits, zero_copy: plan.zero_copy.unwrap_or(0).max(longest_copy) })
    }

    /// Compiles a function into `self.context`.
    fn compile(&mut self, input: Input<'_>) -> Result<Emitted, String> {
        let emitted = self.compile_once(input)?;
        if self.has_fault_return() {
            return Ok(emitted);
        }
        self.compile_once(Input { forces_exit: true, ..input })
    }

    /// Whether the function that was compiled last can be stopped.
    fn has_fault_return(&self) -> bool {
        let compiled = self.context.compiled_code();
        compiled.is_some_and(|compiled| pc_map::has_fault_return(spans(compiled)))
    }

    fn compile_once(&mut self, input: Input<'_>) -> Result<Emitted, String> {
        self.context.clear();
        self.context.set_disasm(self.disassembly.is_some());
        // Images are hostile input to a large library; an error in it must not end the process.
        let compiled = panic::catch_unwind(AssertUnwindSafe(|| {
            let emitted = emit::function(self.isa, input, &mut self.frontend);
            let mut emitted =
                emitted.ok_or("it would take too much code; with less inlining (-O2, -Os, noinline) it takes less")?;
            std::mem::swap(&mut self.context.func, &mut emitted.function);
            let compiled = self.context.compile(self.isa, &mut ControlPlane::default());
            compiled.map(|_| emitted).map_err(|error| format!("{:?}", error.inner))
        }));
        let compiled = compiled.unwrap_or_else(|_| Err("the code generator failed".to_owned()));
        if compiled.is_err() {
            // It may hold an unfinished function.
            self.frontend = FunctionBuilderContext::new();
        }
        compiled
    }

    /// Adds the function that was compiled last to the code. Returns its offset.
    fn place(&mut self) -> Result<usize, String> {
        let compiled = self.context.compiled_code().ok_or("no code was made")?;
        if !compiled.buffer.relocs().is_empty() {
            return Err("it needs functions of the host".to_owned());
        }
        let bytes = compiled.code_buffer();
        let at = self.code.len().next_multiple_of(ALIGNMENT);
        let fits = |offset: usize| u32::try_from(offset).map_err(|_| "it is too large");
        let (start, len) = (fits(at)?, fits(bytes.len())?);
        let size = self.map.size();
        if self.map.push_function(start, len, spans(compiled)).is_none() {
            self.map.truncate(size);
            return Err("it has no fault return".to_owned());
        }
        self.code.resize(at, 0);
        self.code.extend_from_slice(bytes);
        if let (Some(disassembly), Some(text)) = (&mut self.disassembly, &compiled.vcode) {
            disassembly.push_str(text);
        }
        Ok(at)
    }
}

/// Source locations of parts of a function: start, end, location.
fn spans(compiled: &CompiledCode) -> impl Iterator<Item = (u32, u32, u32)> + '_ {
    compiled.buffer.get_srclocs_sorted().iter().map(|span| (span.start, span.end, span.loc.bits()))
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

/// The machine that `triple` names.
pub(super) fn target(triple: &str) -> Result<OwnedTargetIsa, TranslateError> {
    cranelift_codegen::isa::lookup_by_name(triple).map_err(refused)?.finish(flags()?).map_err(refused)
}

/// This machine.
pub(super) fn host() -> Result<&'static dyn TargetIsa, TranslateError> {
    static HOST: OnceLock<Result<OwnedTargetIsa, TranslateError>> = OnceLock::new();
    let isa = || cranelift_native::builder().map_err(refused)?.finish(flags()?).map_err(refused);
    HOST.get_or_init(isa).as_ref().map(|isa| &**isa).map_err(Clone::clone)
}
