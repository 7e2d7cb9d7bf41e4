//! From a plan to Cranelift's intermediate representation: one function for a handler and all it calls.
//!
//! Guest registers are variables, of which Cranelift makes SSA values; functions too large for that keep them in
//! the [`State`]. Everything else about a task lies in the [`State`], whose address is the function's first parameter.
//!
//! The function has one epilogue for all ways out but the return of the handler, [`FAULT_RETURN`]: signal handlers
//! send a thread there from anywhere in the body, so it needs nothing but the frame.

mod alu;
mod atomic;
mod choice;
mod command;
mod counters;
mod device;
mod direct;
mod flow;
mod in_place;
mod memory;
mod part;
mod registers;
mod retreat;
mod rows;
mod sum;
mod swap;
mod twice;
mod vector;

use std::mem::offset_of;
use std::ops::RangeInclusive;

use cranelift_codegen::entity::EntityRef;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{self, AbiParam, InstBuilder, MemFlagsData, SourceLoc, Value};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use spin_abi::fault::Cause;
use spin_abi::map::TASK_BLOCK;

use crate::code::Code;
use crate::csr::Csr;
use crate::decode::Decoded;
use crate::inst::{Format, Inst, Op, Reg};
use crate::jit::accesses::{self, Accesses, Described, Firsts, Roots};
use crate::jit::convention::RETURNED;
use crate::jit::facts::{Facts, Known, Regs};
use crate::jit::options::{Atomics, Options};
use crate::jit::part::Part;
use crate::jit::pc_map::{FAULT_RETURN, HANDLER_RETURN, source_location};
use crate::jit::plan::{Block, BlockId, Plan};
use crate::jit::prologue::Prologue;
use crate::jit::side_exits::SideExits;
use crate::jit::state::{ExitReason, State};
use crate::jit::{totals, vectors};
use crate::view::Checks;
use choice::Choice;
use registers::{Registers, Total};
use vector::Vectors;

/// Blocks up to which registers are SSA values: beyond, finding the values' ways through the blocks takes longer than
/// it saves.
const MAX_SSA_BLOCKS: usize = 1500;

/// Most instructions of Cranelift's intermediate representation for a handler, and most blocks: what hostile code may cost,
/// a second or two on the machines this was measured on. Handlers of a thousand instructions have a tenth of it.
const MAX_IR: usize = 100_000;
const MAX_IR_BLOCKS: usize = 20_000;

/// Whether the registers of a plan's function are in the state.
pub(crate) fn in_memory(plan: &Plan, options: Options) -> bool {
    // Checked accesses take about so many blocks each.
    let each = match options.checks {
        _ if options.any_device => 8,
        Checks::Exact => 4,
        Checks::Page => 1,
    };
    let accesses = plan
        .blocks
        .iter()
        .flat_map(|block| &block.body)
        .filter(|(_, decoded)| accesses::size(&decoded.inst).is_some() || decoded.inst.op == Op::Ecall);
    plan.blocks.len() + each * accesses.count() > MAX_SSA_BLOCKS
}

/// Whether a plan's function may be made in [two](part).
pub(crate) fn splits(plan: &Plan, options: Options) -> bool {
    !vectors::are_in(plan) && !options.observe && !in_memory(plan, options)
}

/// Access to the state and to code's own tables: never traps.
pub(super) const TRUSTED: MemFlagsData = MemFlagsData::trusted();
/// Access to what does not change while the function runs: loads of the same are one, wherever it is of use.
pub(super) const FIXED: MemFlagsData = TRUSTED.with_readonly().with_can_move();
/// Access to guest memory: any alignment, may fault.
pub(super) const GUEST: MemFlagsData = MemFlagsData::new();

/// What came of a function.
pub(crate) struct Made {
    pub(crate) function: ir::Function,
    pub(crate) begins: Prologue,
    /// What is known where it is left for the interpreter, and where that part is which was made before.
    pub(crate) exits: SideExits,
    /// Resume points, with those of that part.
    pub(crate) resumes: usize,
    /// How many bytes of the packet the longest copy may have that the device is told of [later](super::host_copy); none if it makes none.
    pub(crate) copies: u32,
}

/// What a function is made of.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) code: &'a Code,
    pub(crate) plan: &'a Plan,
    pub(crate) facts: &'a Facts,
    pub(crate) options: Options,
    /// Those that wait.
    pub(crate) loops: &'a [RangeInclusive<BlockId>],
    /// What of the plan.
    pub(crate) part: Part<'a>,
    /// Ways to the fault return are taken for some that nothing leads to.
    pub(crate) doubted: bool,
    /// See [`super::in_place::bytes_read`].
    pub(crate) in_place: Option<u32>,
}

/// Builds the function of a plan, or of a part of it: of state and a0, to whether the handler returned. `None` when
/// it would be too large; the context is not to be used again then.
pub(crate) fn function(isa: &dyn TargetIsa, input: Input<'_>, context: &mut FunctionBuilderContext) -> Option<Made> {
    let Input { plan, loops, part, .. } = input;
    let mut signature = ir::Signature::new(isa.default_call_conv());
    signature.params.extend([AbiParam::new(I64); 2]);
    signature.returns.push(AbiParam::new(I64));
    let mut function = ir::Function::with_name_signature(ir::UserFuncName::default(), signature);
    let builder = FunctionBuilder::new(&mut function, context);
    let is_x64 = isa.name() == "x64";
    let mut emitter = Emitter::new(builder, input, is_x64);
    loops.iter().for_each(|blocks| emitter.polls[*blocks.start()] = true);
    emitter.entry();
    let twice = emitter.table_loops();
    for id in (0..plan.blocks.len()).filter(|&id| part.has(id)) {
        match twice.iter().find(|found| found.blocks.contains(&id)) {
            Some(found) if *found.blocks.start() == id => emitter.twice(found),
            None if !emitter.is_chosen(id) => emitter.block(id),
            _ => {}
        }
        emitter.seal_behind(id);
        if emitter.is_too_large() {
            return None;
        }
    }
    for table in 0..plan.tables.len() {
        emitter.dispatch(table);
    }
    let resumes = emitter.first_resume + emitter.resumes.len();
    emitter.resume_points();
    emitter.go_aside();
    emitter.ways_out();
    emitter.builder.seal_all_blocks();
    let (begins, exits, copies, too_large) =
        (emitter.begins, std::mem::take(&mut emitter.known_outside), emitter.copies, emitter.is_too_large());
    emitter.builder.finalize(isa.frontend_config());
    (!too_large).then_some(Made { function, begins, exits, resumes, copies })
}

/// Whether a fence with this immediate asks for no more than that stores are seen in order, before later ones and after earlier
/// loads: it does not order an earlier write before a later read, or says that it need not (unprivileged ISA, 2.7).
const fn keeps_order(sets: i32) -> bool {
    const TSO: i32 = 0x833;
    let (writes_before, reads_after) = (sets & 0x50, sets & 0xa);
    sets == TSO || writes_before == 0 || reads_after == 0
}

struct Emitter<'a> {
    builder: FunctionBuilder<'a>,
    part: Part<'a>,
    /// The number before that of the first resume point.
    first_resume: usize,
    /// See [`Input::doubted`].
    doubted: bool,
    /// To the part that was made before: takes the number of the block where that begins.
    handed_over: Option<ir::Block>,
    code: &'a Code,
    plan: &'a Plan,
    facts: &'a Facts,
    options: Options,
    /// Any address may be a device's.
    any_device: bool,
    /// The host orders all accesses but stores before loads (Intel SDM, vol. 3A, 9.2.2).
    stores_in_order: bool,
    /// It loads vectors in no smaller parts than quadwords, see [`rows`].
    loads_quadwords: bool,
    state: Value,
    base: Value,
    /// What a0 holds at first, extended with zeroes.
    argument: Value,
    begins: Prologue,
    /// What is known where code is left for the interpreter.
    known_outside: SideExits,
    registers: Registers,
    vectors: Vectors,
    /// Instructions completed before this block, when they are counted.
    retired: Option<cranelift_frontend::Variable>,
    blocks: Vec<ir::Block>,
    /// The dispatch of each table; takes the address.
    tables: Vec<ir::Block>,
    start: ir::Block,
    fault_return: ir::Block,
    /// Of tasks that the host ended.
    ended: Junction,
    /// Take cause, pc and address.
    faults: Junction,
    /// To the interpreter; take the number of the exit.
    exits: Junction,
    /// Out of tasks that wait, with which the interpreter goes on later; take the same.
    waits: Junction,
    returned: ir::Block,
    resumes: Vec<device::Resume>,
    /// Of the host's functions, by how many arguments they take besides the state.
    signatures: [Option<ir::SigRef>; 6],
    /// Of the block being emitted.
    known: Known,
    live: Vec<Regs>,
    accesses: Accesses,
    /// At the ends of the blocks emitted so far.
    roots: Vec<Option<Roots>>,
    /// See [`Input::in_place`].
    in_place: Option<u32>,
    /// Where the interpreter goes on if it is to do what was done since, see [`retreat`].
    retreat: Option<ir::Block>,
    /// The same, at the ends of the blocks emitted so far.
    retreats: Vec<Option<ir::Block>>,
    /// The blocks that lead to each; the first comes from elsewhere too, and has none.
    ways: Vec<Vec<BlockId>>,
    /// What their branches choose, by block.
    choices: Vec<Option<Choice>>,
    /// How many ways to each were not emitted yet.
    ways_left: Vec<usize>,
    /// Blocks at which tasks that wait may be parked.
    polls: Vec<bool>,
    /// Indices of atomics that are known to be on L1.
    in_l1: Vec<usize>,
    /// Tables that are known to be there.
    tables_in_l1: Vec<twice::InL1>,
    /// Atomics of the block may be on words of a table.
    has_tables: bool,
    /// By block, when it was asked for: see [`commands::live_behind`](crate::jit::commands::live_behind).
    commands_live: Option<Vec<bool>>,
    /// The words of the block's commands need not be stored.
    hides_commands: bool,
    /// Index of the instruction behind which the block's handler does nothing but return.
    last: Option<usize>,
    /// What is sent there: see [`command`].
    last_send: Option<command::LastSend>,
    /// See [`Made::copies`].
    copies: u32,
    /// The block is the handler's first one, and nothing leads back there: a task begins with it for certain.
    begins_task: bool,
    /// Index of the instruction that loads a pointer which is at a known distance from what it is loaded from.
    task_pointer: Option<usize>,
    block_len: usize,
    /// The instruction, its index in its block, its address.
    current: Option<(u32, Decoded)>,
    index: usize,
    pc: u32,
}

impl<'a> Emitter<'a> {
    fn new(mut builder: FunctionBuilder<'a>, input: Input<'a>, is_x64: bool) -> Self {
        let Input { code, plan, facts, options, loops, part, doubted, in_place } = input;
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        // The body begins here: what is before is the prologue.
        builder.set_srcloc(SourceLoc::new(source_location(plan.blocks[0].start, false)));
        let &[state, argument] = builder.block_params(entry) else { unreachable!("two parameters") };
        let base = builder.ins().load(I64, FIXED, state, offset(offset_of!(State, memory.base)));
        let blocks: Vec<ir::Block> = plan.blocks.iter().map(|_| builder.create_block()).collect();
        let dispatch = |builder: &mut FunctionBuilder<'_>| {
            let block = builder.create_block();
            builder.append_block_param(block, I32);
            block
        };
        let tables = plan.tables.iter().map(|_| dispatch(&mut builder)).collect();
        let (start, fault_return) = (builder.create_block(), builder.create_block());
        builder.set_cold_block(fault_return);
        let returned = builder.create_block();
        let in_memory = in_memory(plan, options);
        let registers = Registers::new(&mut builder, in_memory, options.observe);
        let vectors = Vectors::new(&mut builder, plan, facts, in_memory);
        let counting = options.counting || reads_counters(plan);
        let retired = counting.then(|| builder.declare_var(I64));
        let ways = ways(plan);
        let choices = if counting || options.observe {
            vec![None; plan.blocks.len()]
        } else {
            choice::choices(plan, &ways, loops)
        };
        let mut ways_left: Vec<_> =
            ways.iter().map(|ways| ways.iter().filter(|&&from| part.has(from)).count()).collect();
        // The last ones: the way in, and those of computed jumps, from their dispatch.
        let last = plan.tables.iter().flatten().filter_map(|target| target.block);
        let apart = (0..plan.blocks.len()).filter(|&id| plan.blocks[id].apart);
        last.chain([0]).chain(apart).for_each(|id| ways_left[id] += 1);
        let aside = part.before();
        let known_outside = aside.map(|aside| aside.exits.clone()).unwrap_or_default();
        Self {
            builder,
            part,
            first_resume: aside.map_or(0, |aside| aside.resumes),
            doubted,
            handed_over: None,
            code,
            plan,
            facts,
            options,
            any_device: options.any_device || facts.device_escapes,
            stores_in_order: is_x64,
            loads_quadwords: is_x64,
            state,
            base,
            argument,
            begins: Prologue::default(),
            known_outside,
            registers,
            vectors,
            retired,
            blocks,
            tables,
            start,
            fault_return,
            ended: Junction::new(0),
            faults: Junction::new(3),
            exits: Junction::new(1),
            waits: Junction::new(1),
            returned,
            resumes: Vec::new(),
            signatures: [None; 6],
            known: Known::default(),
            live: Vec::new(),
            accesses: Accesses::default(),
            roots: vec![None; plan.blocks.len()],
            in_place: in_place.filter(|_| !in_memory),
            retreat: None,
            retreats: vec![None; plan.blocks.len()],
            ways,
            choices,
            ways_left,
            polls: vec![false; plan.blocks.len()],
            in_l1: Vec::new(),
            tables_in_l1: Vec::new(),
            has_tables: false,
            commands_live: None,
            hides_commands: false,
            last: None,
            last_send: None,
            copies: 0,
            begins_task: false,
            task_pointer: None,
            block_len: 0,
            current: None,
            index: 0,
            pc: 0,
        }
    }

    /// From the function's entry to the handler's first instruction.
    fn entry(&mut self) {
        let start = self.start;
        if let Some(retired) = self.retired {
            let value = self.load_state(I64, offset_of!(State, hart.retired));
            self.builder.def_var(retired, value);
        }
        self.builder.ins().jump(start, &[]);
    }

    fn block(&mut self, id: BlockId) {
        let plan = self.plan;
        let block = &plan.blocks[id];
        self.builder.switch_to_block(self.blocks[id]);
        self.registers.begin_block();
        self.begins_task = id == 0 && !leads_back(plan);
        // A block that no way leads to has no facts; it needs none.
        self.known = self.facts.known(id).cloned().unwrap_or_default();
        self.vectors.begin_block(id);
        self.live = self.facts.live_within(plan, id);
        let mut roots = Roots::at_start(id, self.ways[id].iter().map(|&from| self.roots[from].as_ref()));
        self.task_pointer = self.task_pointer(block);
        let described = self.task_pointer.map(|index| Described { index, away: memory::TASK_POINTER, len: TASK_BLOCK });
        let behind = |roots: &Roots| if self.exact() { Firsts::behind(plan, id, roots) } else { Firsts::default() };
        let (live, any_device) = (self.live[0], self.any_device);
        self.accesses = Accesses::new(block, &self.known, live, any_device, described, &mut roots, behind);
        self.roots[id] = Some(roots).filter(|_| self.plan.blocks.len() <= MAX_SSA_BLOCKS);
        self.retreat = self.common_retreat(id);
        self.index = 0;
        self.pc = block.start;
        self.locate(false);
        if self.is_apart(id) {
            self.take_over();
        }
        if self.polls[id] {
            self.poll();
        }
        self.count_block(block);
        self.in_l1.clear();
        self.hides_commands = self.hides_commands(id);
        self.last = self.last(id);
        self.has_tables = self.home() && block.body.iter().any(|(_, decoded)| decoded.inst.op.format() == Format::Amo);
        if let Some(row) = self.row(id) {
            return self.add_rows(id, &row);
        }
        if !self.registers.in_state() && plan.successors(id).any(|to| to == id) {
            self.note_totals(block);
        }
        let Some(beyond_l1) = self.amos_beyond_l1() else {
            self.body(id);
            self.retreats[id] = self.retreat;
            return;
        };
        // Twice: atomics that are known to be on L1 take no check each.
        let [known, unknown] = [(); 2].map(|()| self.builder.create_block());
        self.fork(beyond_l1, unknown, known);
        self.builder.set_cold_block(unknown);
        let (facts, cached, setting) = (self.known.clone(), self.registers.clone(), self.vectors.setting());
        let retreat = self.retreat;
        self.in_l1 = self.accesses.amos().iter().flat_map(|span| span.indices.clone()).collect();
        self.builder.switch_to_block(known);
        self.body(id);
        self.in_l1.clear();
        (self.known, self.registers, self.retreat) = (facts, cached, retreat);
        self.vectors.go_back(setting);
        self.builder.switch_to_block(unknown);
        self.cold_body(id);
    }

    /// The instructions of a block, where that is seldom done.
    fn cold_body(&mut self, id: BlockId) {
        let first = self.builder.func.dfg.num_blocks();
        self.body(id);
        let added = first..self.builder.func.dfg.num_blocks();
        added.map(ir::Block::new).for_each(|block| self.builder.set_cold_block(block));
    }

    /// What the block adds up, in each turn of the loop that it is.
    fn note_totals(&mut self, block: &Block) {
        for reg in totals::totals(block).iter() {
            if self.known.constant(reg).is_none() {
                let before = self.get(reg);
                self.registers.add_total(reg, Total { before, more: None });
            }
        }
    }

    /// Seals the blocks to which a block was the last to lead: so no value has to be looked for on ways that are yet to come.
    fn seal_behind(&mut self, id: BlockId) {
        for to in self.plan.successors(id).filter(|&to| to > 0) {
            self.ways_left[to] -= 1;
            if self.ways_left[to] == 0 {
                self.builder.seal_block(self.blocks[to]);
            }
        }
    }

    /// Whether so much code was emitted that none of it is of use.
    fn is_too_large(&self) -> bool {
        let dfg = &self.builder.func.dfg;
        dfg.num_insts() > MAX_IR || dfg.num_blocks() > MAX_IR_BLOCKS
    }

    /// The instructions of a block and where they lead.
    fn body(&mut self, id: BlockId) {
        let block = &self.plan.blocks[id];
        for (index, (pc, decoded)) in block.body.iter().enumerate() {
            (self.index, self.pc, self.current) = (index, *pc, Some((*pc, *decoded)));
            self.locate(matches!(decoded.inst.op.format(), Format::Amo));
            if !self.instruction(decoded) || self.is_too_large() {
                return;
            }
            if !retreat::is_done_again(&decoded.inst) {
                self.retreat = None;
            }
            // What jumps write is known at the end of the block.
            if !matches!(decoded.inst.op, Op::Jal | Op::Jalr) {
                self.known.step(*pc, &decoded.inst, decoded.size);
            }
            if let Some(back) = block.restored(index) {
                self.expect_return_address(decoded, back);
            }
        }
        self.index = block.body.len();
        self.end(id);
    }

    /// Translates an instruction; `false` when none after it is reached.
    fn instruction(&mut self, decoded: &Decoded) -> bool {
        let inst = &decoded.inst;
        let goes_on = self.operation(decoded);
        if !in_place::leaves_packet(inst) {
            self.registers.found.clear();
        }
        goes_on
    }

    fn operation(&mut self, decoded: &Decoded) -> bool {
        let inst = &decoded.inst;
        match inst.op.format() {
            Format::R | Format::Unary | Format::I | Format::Shift | Format::U => self.arithmetic(inst),
            Format::Load => self.load(inst),
            Format::Store => self.store(inst),
            Format::Amo if inst.op == Op::ScW => self.store_conditional(inst),
            Format::Amo => self.amo(inst),
            Format::LoadReserved => self.load_reserved(inst),
            Format::Csr | Format::CsrImmediate => return self.csr(inst),
            Format::Fence => {
                if inst.op == Op::Fence && !(self.stores_in_order && keeps_order(inst.imm)) {
                    self.builder.ins().fence();
                }
            }
            Format::System if inst.op == Op::Ecall => self.ecall(),
            Format::System => {
                self.fault_always(Cause::Breakpoint, 0);
                return false;
            }
            Format::Vector => return self.vector(inst),
            // Their part is at the end of the block.
            Format::Branch | Format::J | Format::JumpRegister => {}
        }
        true
    }

    /// Code emitted from here on belongs to the current instruction.
    fn locate(&mut self, atomic: bool) {
        self.builder.set_srcloc(SourceLoc::new(source_location(self.pc, atomic)));
    }

    /// Epilogues, and what all ways there do.
    fn ways_out(&mut self) {
        for fault in std::mem::take(&mut self.faults.blocks) {
            self.builder.switch_to_block(fault);
            let &[cause, pc, address] = self.builder.block_params(fault) else { unreachable!("it takes three") };
            self.store_state(cause, offset_of!(State, fault.cause));
            self.store_state(pc, offset_of!(State, fault.pc));
            self.store_state(address, offset_of!(State, fault.address));
            self.leave(ExitReason::Faulted);
        }
        let [exits, waits] = [&mut self.exits, &mut self.waits].map(|junction| std::mem::take(&mut junction.blocks));
        let exits = exits.into_iter().map(|exit| (exit, ExitReason::Interpret));
        for (exit, how) in exits.chain(waits.into_iter().map(|wait| (wait, ExitReason::Waiting))) {
            self.builder.switch_to_block(exit);
            let number = self.builder.block_params(exit)[0];
            self.store_state(number, offset_of!(State, resume));
            self.leave(how);
        }
        for ended in std::mem::take(&mut self.ended.blocks) {
            self.builder.switch_to_block(ended);
            self.builder.ins().jump(self.fault_return, &[]);
        }

        // Not of the body: a thread in an epilogue must not be sent to another.
        self.builder.switch_to_block(self.returned);
        self.builder.set_srcloc(SourceLoc::new(HANDLER_RETURN));
        let returned = self.builder.ins().iconst(I64, RETURNED);
        self.return_how(returned);

        self.builder.switch_to_block(self.fault_return);
        self.builder.set_srcloc(SourceLoc::new(FAULT_RETURN));
        // Not zero, and made here: a constant might be made before, where another instruction wants the same.
        let left = self.builder.ins().get_stack_pointer(I64);
        self.return_how(left);
    }

    /// Returns what says `how` the function ended. What else it returns, if it does so elsewhere, is anything.
    fn return_how(&mut self, how: Value) {
        let results = self.builder.func.signature.returns.len();
        self.builder.ins().return_(&[how; 2][..results]);
    }

    /// Whether there are ways to the fault return, though Cranelift may find that nothing leads there.
    fn may_leave(&self) -> bool {
        let ways = [&self.faults, &self.exits, &self.waits, &self.ended];
        let any = self.handed_over.is_some() || ways.into_iter().any(|junction| !junction.blocks.is_empty());
        !self.doubted && any
    }

    /// Ends the block by leaving the function.
    fn leave(&mut self, how: ExitReason) {
        let code = self.builder.ins().iconst(I32, i64::from(how as u32));
        self.store_state(code, offset_of!(State, exit));
        self.builder.ins().jump(self.fault_return, &[]);
    }

    fn load_state(&mut self, ty: ir::Type, at: usize) -> Value {
        self.builder.ins().load(ty, TRUSTED, self.state, offset(at))
    }

    /// Loads a field that does not change while the function runs.
    fn load_fixed(&mut self, ty: ir::Type, at: usize) -> Value {
        self.builder.ins().load(ty, FIXED, self.state, offset(at))
    }

    fn store_state(&mut self, value: Value, at: usize) {
        self.builder.ins().store(TRUSTED, value, self.state, offset(at));
    }

    fn constant(&mut self, value: u32) -> Value {
        self.builder.ins().iconst(I32, i64::from(value))
    }

    /// The value of a register.
    fn get(&mut self, reg: Reg) -> Value {
        match self.known.constant(reg) {
            Some(value) => self.constant(value),
            None => self.registers.get(&mut self.builder, self.state, reg),
        }
    }

    fn set(&mut self, reg: Reg, value: Value) {
        self.registers.set(&mut self.builder, self.state, reg, value);
    }

    /// Sets a register to a value extended with zeroes.
    fn set_wide(&mut self, reg: Reg, value: Value) {
        self.registers.set_wide(&mut self.builder, self.state, reg, value);
    }

    /// Lets the blocks that follow have what registers hold.
    fn publish(&mut self, live: Regs) {
        self.registers.publish(&mut self.builder, self.state, live);
    }

    /// Ends the block: goes to `seldom` when `condition` holds, else to `mostly`. Nothing else leads to either.
    ///
    /// What is named last Cranelift looks at first, and takes nothing out of a loop any more once it came by a way out of it
    /// (`egraph/elaborate.rs`). What all ways lead to is sealed as soon as they are there, so that a value that is the same on all of
    /// them is known as that one, also by what is emitted next.
    fn fork(&mut self, condition: Value, seldom: ir::Block, mostly: ir::Block) {
        self.builder.ins().brif(condition, seldom, &[], mostly, &[]);
        self.builder.seal_block(seldom);
        self.builder.seal_block(mostly);
    }

    /// Goes on in a block that all ways lead to which ever will.
    fn join(&mut self, block: ir::Block) {
        self.builder.seal_block(block);
        self.builder.switch_to_block(block);
    }

    /// Goes to a new cold block when `condition` holds, and emits there what `cold` does, which ends that block.
    fn unlikely(&mut self, condition: Value, cold: impl FnOnce(&mut Self)) {
        let (aside, go_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(aside);
        self.fork(condition, aside, go_on);
        self.builder.switch_to_block(aside);
        let cached = self.registers.clone();
        cold(self);
        self.registers = cached;
        self.builder.switch_to_block(go_on);
    }

    /// Faults when `condition` holds.
    fn fault_if(&mut self, condition: Value, cause: Cause, address: Value) {
        let fault = self.faults.way(&mut self.builder);
        // The constants are made aside, not before the branch.
        self.unlikely(condition, |emitter| {
            emitter.publish_count();
            let (cause, pc) = (emitter.constant(cause.code()), emitter.constant(emitter.pc));
            emitter.builder.ins().jump(fault, &[cause.into(), pc.into(), address.into()]);
        });
    }

    /// Ends the block with a fault.
    fn fault_always(&mut self, cause: Cause, address: u32) {
        self.publish_count();
        let arguments = [cause.code(), self.pc, address].map(|value| self.constant(value).into());
        let fault = self.faults.way(&mut self.builder);
        self.builder.ins().jump(fault, &arguments);
    }

    /// Ends the block: the interpreter goes on at `pc`, where the registers `live` may be read.
    fn interpret(&mut self, pc: u32, live: Regs) {
        let exit = self.exits.way(&mut self.builder);
        self.leave_at(Some(pc), live, exit);
    }

    /// The same, at an address that is known only when it runs.
    fn interpret_at(&mut self, pc: Value, live: Regs) {
        self.store_state(pc, offset_of!(State, hart.pc));
        let exit = self.exits.way(&mut self.builder);
        self.leave_at(None, live, exit);
    }

    /// Ends the block: the task waits, and the interpreter goes on at `pc` when it is run again.
    fn wait(&mut self, pc: u32, live: Regs) {
        let exit = self.waits.way(&mut self.builder);
        self.leave_at(Some(pc), live, exit);
    }

    fn leave_at(&mut self, pc: Option<u32>, live: Regs, exit: ir::Block) {
        self.publish_count();
        // What the state has needs not be told.
        let told = if self.registers.in_state() { Regs(0) } else { live };
        let known = self.known.constants().filter(|(reg, _)| told.has(*reg)).collect();
        self.save(self.unknown(live));
        self.save_all_vectors();
        let number = self.known_outside.add(pc, known);
        let number = self.constant(number);
        self.builder.ins().jump(exit, &[number.into()]);
    }

    /// Those of some registers that only the running task knows.
    fn unknown(&self, regs: Regs) -> Regs {
        self.known.constants().fold(regs, |regs, (reg, _)| regs.without(reg))
    }

    /// Writes registers to the hart.
    fn save(&mut self, regs: Regs) {
        if self.registers.in_state() {
            return;
        }
        for reg in regs.iter() {
            match self.known.constant(reg) {
                Some(value) => {
                    let value = self.constant(value);
                    self.store_state(value, registers::place(reg));
                }
                None => self.registers.save(&mut self.builder, self.state, reg),
            }
        }
    }

    fn exact(&self) -> bool {
        self.options.checks == Checks::Exact
    }

    fn home(&self) -> bool {
        self.options.atomics == Atomics::Home
    }

    fn compare(&mut self, condition: IntCC, value: Value, with: u32) -> Value {
        let with = self.constant(with);
        self.builder.ins().icmp(condition, value, with)
    }
}

/// Ways to a block up to which it costs next to nothing that Cranelift looks at all of them for each.
const FEW_WAYS: usize = 64;

/// Cold blocks that all do the same, of which each is where a few ways end.
struct Junction {
    /// Of 32 bits.
    parameters: usize,
    ways: usize,
    blocks: Vec<ir::Block>,
}

impl Junction {
    const fn new(parameters: usize) -> Self {
        Self { parameters, ways: 0, blocks: Vec::new() }
    }

    /// Where one more way ends.
    fn way(&mut self, builder: &mut FunctionBuilder<'_>) -> ir::Block {
        if self.ways.is_multiple_of(FEW_WAYS) {
            let block = builder.create_block();
            builder.set_cold_block(block);
            (0..self.parameters).for_each(|_| _ = builder.append_block_param(block, I32));
            self.blocks.push(block);
        }
        self.ways += 1;
        self.blocks[self.blocks.len() - 1]
    }
}

/// The blocks that lead to each block, none for the first.
pub(crate) fn ways(plan: &Plan) -> Vec<Vec<BlockId>> {
    let mut ways = vec![Vec::new(); plan.blocks.len()];
    for from in 0..plan.blocks.len() {
        plan.successors(from).filter(|&to| to > 0).for_each(|to| ways[to].push(from));
    }
    ways
}

/// Whether anything leads to the first block once a task has begun.
fn leads_back(plan: &Plan) -> bool {
    let goes_on = (0..plan.blocks.len()).flat_map(|from| plan.successors(from)).any(|to| to == 0);
    goes_on || plan.tables.iter().flatten().any(|target| target.block == Some(0))
}

fn reads_counters(plan: &Plan) -> bool {
    let counts = |inst: &Inst| match inst.op.format() {
        Format::Csr | Format::CsrImmediate => {
            matches!(Csr::from_number(inst.imm.cast_unsigned()), Some(Csr::Cycle(_) | Csr::Time(_) | Csr::Instret(_)))
        }
        _ => inst.op == Op::Ecall,
    };
    plan.blocks.iter().flat_map(|block| &block.body).any(|(_, decoded)| counts(&decoded.inst))
}

/// An offset in the state.
fn offset(at: usize) -> i32 {
    // A state is some hundred bytes long.
    i32::try_from(at).unwrap_or(i32::MAX)
}
