//! State of the emission of one region, and what all parts of it use.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, AbiParam, InstBuilder, Signature, SourceLoc, Value};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::access::{FIXED, TRUSTED, offset};
use super::cache::BlockCache;
use super::registers::{self, Registers};
use super::vector_registers::Vectors;
use super::ways::Ways;
use crate::analysis::cfg::{BlockId, Cfg};
use crate::analysis::dataflow::{Dataflow, RegState};
use crate::analysis::regs::Regs;
use crate::code::Code;
use crate::inst::Reg;
use crate::jit::options::{Atomics, Options};
use crate::jit::passes::Plan;
use crate::jit::pc_map::source_location;
use crate::jit::state::State;
use crate::view::Checks;

/// Maximum number of instructions and blocks of the intermediate representation of a region: they bound what hostile code
/// may cost. A handler of a thousand instructions has a tenth of them.
const MAX_IR: usize = 100_000;
const MAX_IR_BLOCKS: usize = 20_000;

/// What a function is emitted from.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) code: &'a Code,
    pub(crate) cfg: &'a Cfg,
    pub(crate) facts: &'a Dataflow,
    pub(crate) plan: &'a Plan,
    pub(crate) options: Options,
    /// The host orders all accesses but stores before loads (Intel SDM, vol. 3A, 9.2.2).
    pub(crate) stores_in_order: bool,
    /// Cranelift removes ways to the fault return that it finds unreachable; keep one in any case.
    pub(crate) forces_exit: bool,
}

/// The current instruction.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// Its block; `None` in code that belongs to no block.
    pub(super) block: Option<BlockId>,
    /// Its index in the block; at the end of the block the number of instructions.
    pub(super) index: usize,
    /// Its address.
    pub(super) pc: u32,
    /// Instructions of the block that were completed and not yet counted.
    pub(super) uncounted: usize,
}

/// Cranelift's blocks of the region's blocks.
pub(super) struct Blocks {
    pub(super) of: Vec<ir::Block>,
    /// The dispatch of each table; takes the address.
    pub(super) tables: Vec<ir::Block>,
    /// First block of the body, before the handler's first instruction.
    pub(super) start: ir::Block,
    /// By block, the number of predecessors that were not emitted yet.
    pub(super) left: Vec<usize>,
}

/// A send that is left to the caller of the function.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastSend {
    pub(super) pc: u32,
    pub(super) address: Value,
    pub(super) length: Value,
}

/// Where a task continues that was parked, or that comes from another region.
pub(super) struct Resume {
    pub(super) here: ir::Block,
    /// Registers that are loaded on the way there.
    pub(super) live: Regs,
    /// Registers whose values are known there.
    pub(super) known: Vec<(Reg, u32)>,
}

/// What becomes known during the emission.
#[derive(Default)]
pub(super) struct Outcome {
    /// A send that is left to the caller, which the current block ends with.
    pub(super) last_send: Option<LastSend>,
    /// Number of bytes of the longest copy of which the device is [told later](crate::jit::host_copy); 0 for none.
    pub(super) longest_copy: u32,
}

/// The emission of one region.
pub(super) struct Emitter<'a> {
    pub(super) builder: FunctionBuilder<'a>,
    pub(super) input: Input<'a>,
    pub(super) signatures: HostSignatures,
    /// Host addresses of the [`State`] and of guest address 0, and the initial value of a0, zero-extended.
    pub(super) state: Value,
    pub(super) base: Value,
    pub(super) argument: Value,
    pub(super) registers: Registers,
    pub(super) cache: BlockCache,
    pub(super) vectors: Vectors,
    pub(super) blocks: Blocks,
    pub(super) ways: Ways,
    pub(super) resumes: Vec<Resume>,
    /// Instructions completed before this block, if they are counted.
    pub(super) retired: Option<Variable>,
    pub(super) at: Cursor,
    pub(super) outcome: Outcome,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(mut builder: FunctionBuilder<'a>, input: Input<'a>) -> Self {
        let Input { cfg, plan, options, .. } = input;
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        // The body begins here; before it is the prologue.
        let first = cfg.blocks[cfg.starts()[0]].start;
        builder.set_srcloc(SourceLoc::new(source_location(first, false)));
        let &[state, argument] = builder.block_params(entry) else { unreachable!("two parameters") };
        let base = builder.ins().load(I64, FIXED, state, offset(offset_of!(State, memory.base)));
        let blocks = Blocks::new(&mut builder, cfg);
        let ways = Ways::new(&mut builder, cfg.blocks.len());
        let registers = Registers::new(&mut builder, cfg, options.observe);
        let vectors = Vectors::new(&mut builder, cfg);
        let retired = plan.counts.then(|| builder.declare_var(I64));
        Self {
            builder,
            input,
            signatures: HostSignatures::default(),
            state,
            base,
            argument,
            registers,
            cache: BlockCache::default(),
            vectors,
            blocks,
            ways,
            resumes: Vec::new(),
            retired,
            at: Cursor { block: None, index: 0, pc: first, uncounted: 0 },
            outcome: Outcome::default(),
        }
    }

    /// What is known before the current instruction.
    pub(super) fn known(&self) -> &'a RegState {
        let Input { facts, .. } = self.input;
        self.at.block.map_or(facts.nothing(), |block| facts.before(block, self.at.index))
    }

    /// Registers that may be read from the current instruction on.
    pub(super) fn live(&self) -> Regs {
        self.at.block.map_or(Regs::ALL, |block| self.input.facts.live(block, self.at.index))
    }

    /// Number of the current instruction in the region's facts.
    pub(super) fn number(&self) -> Option<usize> {
        self.at.block.map(|block| self.input.facts.number(block, self.at.index))
    }

    pub(super) fn exact(&self) -> bool {
        self.input.options.checks == Checks::Exact
    }

    /// Whether AMOs on L1 need no lock.
    pub(super) fn home(&self) -> bool {
        self.input.options.atomics == Atomics::Home
    }

    /// Whether side effects of commands are observed, or counted.
    pub(super) const fn is_watched(&self) -> bool {
        self.input.options.observe || self.retired.is_some()
    }

    /// Whether the emission is to be abandoned.
    pub(super) fn is_too_large(&self) -> bool {
        let dfg = &self.builder.func.dfg;
        dfg.num_insts() > MAX_IR || dfg.num_blocks() > MAX_IR_BLOCKS
    }

    /// Assigns code emitted from here on to the current instruction.
    pub(super) fn locate(&mut self, atomic: bool) {
        self.builder.set_srcloc(SourceLoc::new(source_location(self.at.pc, atomic)));
    }

    pub(super) fn load_state(&mut self, ty: ir::Type, at: usize) -> Value {
        self.builder.ins().load(ty, TRUSTED, self.state, offset(at))
    }

    /// Loads a field that does not change while the function runs.
    pub(super) fn load_fixed(&mut self, ty: ir::Type, at: usize) -> Value {
        self.builder.ins().load(ty, FIXED, self.state, offset(at))
    }

    pub(super) fn store_state(&mut self, value: Value, at: usize) {
        self.builder.ins().store(TRUSTED, value, self.state, offset(at));
    }

    pub(super) fn constant(&mut self, value: u32) -> Value {
        self.builder.ins().iconst(I32, i64::from(value))
    }

    pub(super) fn compare(&mut self, condition: IntCC, value: Value, with: u32) -> Value {
        let with = self.constant(with);
        self.builder.ins().icmp(condition, value, with)
    }

    /// The value of a register.
    pub(super) fn get(&mut self, reg: Reg) -> Value {
        match self.known().constant(reg) {
            Some(value) => self.constant(value),
            None => self.registers.get(&mut self.builder, reg),
        }
    }

    /// The value of a register, zero-extended, whatever is known of it.
    pub(super) fn get_wide(&mut self, reg: Reg) -> Value {
        self.registers.get_wide(&mut self.builder, reg)
    }

    pub(super) fn set(&mut self, reg: Reg, value: Value) {
        self.registers.set(&mut self.builder, self.state, reg, value);
    }

    /// Sets a register to a zero-extended value.
    pub(super) fn set_wide(&mut self, reg: Reg, value: Value) {
        self.registers.set_wide(&mut self.builder, self.state, reg, value);
    }

    /// Loads a register from the hart.
    pub(super) fn reload(&mut self, reg: Reg) {
        self.registers.reload(&mut self.builder, self.state, reg);
    }

    /// Instructions completed before the current one, if they are counted.
    pub(super) fn count(&mut self) -> Option<Value> {
        let before = self.builder.use_var(self.retired?);
        Some(self.builder.ins().iadd_imm_s(before, self.at.uncounted.cast_signed() as i64))
    }

    /// Writes that number to the hart, for others to read.
    pub(super) fn publish_count(&mut self) {
        if let Some(count) = self.count() {
            self.store_state(count, offset_of!(State, hart.retired));
        }
    }

    /// Makes the values of registers available in other blocks.
    pub(super) fn publish(&mut self, live: Regs) {
        self.registers.publish(&mut self.builder, live);
    }

    /// Writes registers to the hart, unless it has them.
    pub(super) fn save(&mut self, regs: Regs) {
        if self.registers.in_state() {
            return;
        }
        for reg in regs.iter() {
            if !self.registers.is_written(reg) {
                continue;
            }
            match self.known().constant(reg) {
                Some(value) => {
                    let value = self.constant(value);
                    self.store_state(value, registers::place(reg));
                }
                None => self.registers.save(&mut self.builder, self.state, reg),
            }
        }
    }

    /// Forgets what holds within a block: another one begins, which not all code emitted so far leads to.
    pub(super) fn begin_block(&mut self) {
        self.registers.begin_block();
        self.cache.clear();
        self.vectors.forget_firsts();
        self.ways.shared = None;
    }

    /// Ends the block: goes to `seldom` when `condition` holds, else to `mostly`. Nothing else leads to either.
    ///
    /// Cranelift visits the last target first, and moves nothing out of a loop once it has come by a way out of it
    /// (`egraph/elaborate.rs`). Blocks are sealed as soon as all their predecessors are there: then a value that is equal
    /// on all ways is known as one, also to what is emitted next.
    pub(super) fn fork(&mut self, condition: Value, seldom: ir::Block, mostly: ir::Block) {
        self.builder.ins().brif(condition, seldom, &[], mostly, &[]);
        self.builder.seal_block(seldom);
        self.builder.seal_block(mostly);
    }

    /// Continues in a block that has all its predecessors.
    pub(super) fn join(&mut self, block: ir::Block) {
        self.builder.seal_block(block);
        self.builder.switch_to_block(block);
    }

    /// Goes to a new cold block when `condition` holds; `cold` emits that block and ends it.
    pub(super) fn unlikely(&mut self, condition: Value, cold: impl FnOnce(&mut Self)) {
        let (aside, go_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(aside);
        self.fork(condition, aside, go_on);
        self.builder.switch_to_block(aside);
        self.apart(cold);
        self.builder.switch_to_block(go_on);
    }

    /// Emits a block that ends the function, and restores the registers afterwards.
    pub(super) fn fill(&mut self, block: ir::Block, fill: impl FnOnce(&mut Self)) {
        self.builder.switch_to_block(block);
        self.apart(fill);
    }

    /// Emits code whose values the code that follows cannot use.
    pub(super) fn apart(&mut self, emit: impl FnOnce(&mut Self)) {
        let (registers, cache) = (self.registers.clone(), self.cache.clone());
        emit(self);
        (self.registers, self.cache) = (registers, cache);
    }

    /// Seals blocks all of whose predecessors were emitted with this one.
    pub(super) fn seal_successors(&mut self, id: BlockId) {
        let cfg = self.input.cfg;
        for to in cfg.successors(id).filter(|&to| cfg.is_compiled(id, to)) {
            self.blocks.left[to] -= 1;
            if self.blocks.left[to] == 0 {
                self.builder.seal_block(self.blocks.of[to]);
            }
        }
    }
}

impl Blocks {
    fn new(builder: &mut FunctionBuilder<'_>, cfg: &Cfg) -> Self {
        let of = cfg.blocks.iter().map(|_| builder.create_block()).collect();
        let dispatch = |builder: &mut FunctionBuilder<'_>| {
            let block = builder.create_block();
            builder.append_block_param(block, I32);
            block
        };
        let tables = cfg.tables.iter().map(|_| dispatch(builder)).collect();
        let compiled =
            |id: BlockId| cfg.predecessors[id].iter().filter(move |&&from| cfg.is_compiled(from, id)).count();
        let mut left: Vec<usize> = (0..cfg.blocks.len()).map(compiled).collect();
        // Emitted last: the way in, and the edges of computed jumps, which come from their dispatch.
        let in_tables = cfg.tables.iter().flatten().filter_map(|target| target.block);
        in_tables.chain(cfg.starts().iter().copied()).for_each(|id| left[id] += 1);
        Self { of, tables, start: builder.create_block(), left }
    }
}

/// Types of host functions by the number of their 32-bit arguments besides the state.
#[derive(Default)]
pub(super) struct HostSignatures([Option<ir::SigRef>; 6]);

impl HostSignatures {
    pub(super) fn get(&mut self, builder: &mut FunctionBuilder<'_>, arguments: usize) -> ir::SigRef {
        *self.0[arguments].get_or_insert_with(|| {
            let mut signature = Signature::new(builder.func.signature.call_conv);
            signature.params.push(AbiParam::new(I64));
            signature.params.extend((0..arguments).map(|_| AbiParam::new(I32)));
            signature.returns.push(AbiParam::new(I64));
            builder.import_signature(signature)
        })
    }
}
