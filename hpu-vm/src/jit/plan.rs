//! The instructions that a handler can reach, in basic blocks: the input of the translation.
//!
//! Calls are inlined: a block belongs to a [`Frame`], the chain of calls that leads to it, so that a return is a
//! comparison with a single return address. A jump to the handler's first instruction leads to a copy of the first
//! block, unless that block is long. Most often only the beginning of a task then leads to the original. Functions that
//! the handler leaves to by a tail jump (`j` in place of call and return), if the image's symbols name them, are most
//! likely rarely executed. They are translated [aside](Plan::sides). Recursion, and code that would grow too large,
//! share one frame whose returns may go to any of its calls. A plan may be incomplete without being wrong: the
//! interpreter executes everything else, such as a jump to an address not contained in code or data, or code beyond the
//! bounds.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use spin_abi::map::RETURN_ADDRESS;

use crate::code::Code;
use crate::decode::Decoded;
use crate::inst::{Format, Inst, Op, Reg};
use crate::jit::facts;

/// Most instructions of a plan, copies included. The paper's program memory holds 16,384.
const MAX_INSTRUCTIONS: usize = 20_000;
/// Instructions up to which calls are inlined.
const MAX_INLINED: usize = 2_000;
/// Deepest chain of inlined calls.
const MAX_DEPTH: usize = 12;
/// Most targets of one computed jump.
const MAX_TARGETS: usize = 256;
/// Most ways from computed jumps to their targets: what flows along each of them takes time to find out.
const MAX_WAYS: usize = 50_000;
/// Most addresses looked at for such targets.
const MAX_TAKEN: usize = 4096;
/// Most instructions of a first block that is [copied](Frame::AGAIN).
const MAX_FIRST: usize = 100;

/// A chain of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Frame(usize);

impl Frame {
    /// The handler itself.
    const HANDLER: Self = Self(0);
    /// All functions whose caller is not known.
    const SHARED: Self = Self(1);
    /// The handler's first block, jumped to; what follows it is the handler's.
    const AGAIN: Self = Self(2);
    /// The handler, which another function has gone to in the end.
    const ANEW: Self = Self(3);

    /// The frame of what follows a block of this one.
    const fn behind(self) -> Self {
        if self.0 == Self::AGAIN.0 { Self::HANDLER } else { self }
    }
}

/// An instruction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    frame: Frame,
    pc: u32,
}

/// Index of a block in [`Plan::blocks`].
pub(crate) type BlockId = usize;

/// Index of a table in [`Plan::tables`].
pub(crate) type TableId = usize;

/// What a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// What the handler does mostly.
    Mostly,
    /// What is reached by way of blocks that are [apart](Block::apart) only.
    Aside,
    Both,
}

/// Where control goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The address.
    pub(crate) pc: u32,
    /// The block there; `None` when it is not planned.
    pub(crate) block: Option<BlockId>,
}

/// Addresses of code that an image holds, in `data` words or computed by pairs of instructions in `code`: where its
/// computed jumps may go. Guesses; a plan does not depend on them being right.
pub(crate) fn addresses_taken<'d>(code: &'d Code, data: impl Iterator<Item = &'d [u8]>) -> BTreeSet<u32> {
    let segments = code.segments();
    let words = data.chain(segments.iter().map(|segment| &*segment.bytes)).flat_map(|bytes| bytes.as_chunks().0);
    let held = words.map(|word| u32::from_le_bytes(*word));
    let computed = segments.iter().flat_map(|segment| {
        let len = u32::try_from(segment.bytes.len()).unwrap_or(u32::MAX);
        (0..len).step_by(2).filter_map(|at| pair(code, segment.base + at))
    });
    held.chain(computed).filter(|&address| address & 1 == 0 && code.fetch(address).is_some()).take(MAX_TAKEN).collect()
}

/// The value that `lui` or `auipc` at `pc` and an `addi` behind it compute.
fn pair(code: &Code, pc: u32) -> Option<u32> {
    let high = code.fetch(pc)?;
    let base = match high.inst.op {
        Op::Lui => 0,
        Op::Auipc => pc,
        _ => return None,
    };
    let low = code.fetch(after(pc, high)).map(|decoded| decoded.inst)?;
    let same = low.op == Op::Addi && low.rs1 == high.inst.rd;
    same.then(|| base.wrapping_add(high.inst.imm.wrapping_add(low.imm).cast_unsigned()))
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Goes on there.
    Goto(Target),
    /// The last instruction is a conditional branch.
    Branch { taken: Target, not: Target },
    /// The last instruction is `jalr`: where it most likely goes, and the table of what else it may go to.
    Jump { likely: Option<Target>, table: Option<TableId> },
    /// Nothing can be executed at this address.
    Fetch(u32),
}

/// A run of instructions with one entrance.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Address of the first instruction.
    pub(crate) start: u32,
    /// Addresses and instructions, with the one that ends the block, if one does.
    pub(crate) body: Vec<(u32, Decoded)>,
    /// What follows.
    pub(crate) end: End,
    /// It begins a function that another one has gone to in the end: what the handler seldom does, most likely.
    pub(crate) apart: bool,
    /// Where it frees a stack frame from which it has loaded the return address of its own, most likely.
    pub(crate) restore: Option<Restore>,
}

impl Block {
    /// The return address that is expected in its register behind the instruction at `index`.
    pub(crate) fn restored(&self, index: usize) -> Option<u32> {
        self.restore.filter(|restore| restore.index == index).map(|restore| restore.back)
    }
}

/// See [`Block::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restore {
    /// Of the instruction that frees, behind which nobody needs the registers that were loaded over.
    pub(crate) index: usize,
    /// The return address.
    pub(crate) back: u32,
}

/// What is to be translated.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The first one is the handler's.
    pub(crate) blocks: Vec<Block>,
    /// Targets of computed jumps, no two of one address.
    pub(crate) tables: Vec<Vec<Target>>,
    /// Instructions, copies included.
    pub(crate) instructions: usize,
}

impl Plan {
    /// Blocks that may follow one.
    pub(crate) fn successors(&self, block: BlockId) -> impl Iterator<Item = BlockId> + '_ {
        let (first, second, table) = match &self.blocks[block].end {
            End::Goto(to) => (Some(to), None, None),
            End::Branch { taken, not } => (Some(taken), Some(not), None),
            End::Jump { likely, table } => (likely.as_ref(), None, *table),
            End::Fetch(_) => (None, None, None),
        };
        let more = table.map_or(&[][..], |table| &self.tables[table]);
        first.into_iter().chain(second).chain(more).filter_map(|target| target.block)
    }

    /// Has these blocks [apart](Block::apart), but for those that something else leads to than a block that leads nowhere else.
    fn set_apart(&mut self, ids: impl Iterator<Item = BlockId>) {
        ids.for_each(|id| self.blocks[id].apart = true);
        let others = (0..self.blocks.len()).filter(|&id| !matches!(self.blocks[id].end, End::Goto(_)));
        let reached: Vec<BlockId> = others.flat_map(|id| self.successors(id)).collect();
        let of_tables = self.tables.iter().flatten().filter_map(|target| target.block);
        for id in reached.into_iter().chain(of_tables).chain([0]).collect::<Vec<_>>() {
            self.blocks[id].apart = false;
        }
    }

    /// By block, where it belongs. `None` when all belong together: nothing is [apart](Block::apart), or it leads back to others.
    pub(crate) fn sides(&self) -> Option<Vec<Side>> {
        let mut sides = vec![Side::Aside; self.blocks.len()];
        let mut work = vec![0];
        while let Some(block) = work.pop() {
            if std::mem::replace(&mut sides[block], Side::Mostly) == Side::Aside {
                work.extend(self.successors(block).filter(|&to| !self.blocks[to].apart));
            }
        }
        for (side, block) in sides.iter_mut().zip(&self.blocks).filter(|(_, block)| block.body.is_empty()) {
            // Where handlers return to, most often.
            if matches!(block.end, End::Fetch(_)) && !block.apart {
                *side = Side::Both;
            }
        }
        let leads_back =
            |block: BlockId| sides[block] == Side::Aside && self.successors(block).any(|to| sides[to] == Side::Mostly);
        // Nothing may lead to a block, once jumps turned out to go elsewhere.
        let splits = self.tables.is_empty() && self.blocks.iter().any(|block| block.apart);
        // A handler that always goes there does nothing but that.
        let always = matches!(self.blocks[0].end, End::Goto(Target { block: Some(to), .. }) if self.blocks[to].apart);
        (splits && !always && !(0..self.blocks.len()).any(leads_back)).then_some(sides)
    }

    /// Everything reachable from `entry`. `taken` are the addresses of code that the image's data hold: where computed
    /// jumps may go.
    pub(crate) fn new(code: &Code, entry: u32, taken: &BTreeSet<u32>) -> Self {
        let mut explorer = Explorer::new(code, entry, taken);
        let entry = Place { frame: Frame::HANDLER, pc: entry };
        explorer.begin_block(entry);
        while let Some(place) = explorer.work.pop() {
            explorer.follow(place);
        }
        explorer.into_plan(entry)
    }
}

/// A frame: who called it, and where it returns to when that is known.
#[derive(Clone, Copy, Debug)]
struct Call {
    caller: Frame,
    depth: usize,
    back: Option<u32>,
}

/// How control leaves an instruction.
enum Flow {
    Next,
    Goto(Place),
    Branch {
        taken: Place,
        not: Place,
    },
    /// To a place that is likely, or to one in the table of a frame.
    Jump {
        likely: Option<Place>,
        table: Option<Frame>,
    },
    Never,
}

struct Explorer<'c> {
    code: &'c Code,
    entry: u32,
    /// Of what jumps of the handler to its entry lead to.
    again: Frame,
    taken: Vec<u32>,
    frames: Vec<Call>,
    /// Frames by caller and return address.
    callees: HashMap<(Frame, u32), Frame>,
    /// Every planned instruction, and whether a block begins there.
    planned: HashMap<Place, bool>,
    /// Addresses behind calls of the shared frame.
    returns: BTreeSet<u32>,
    /// Where functions go in the end.
    apart: BTreeSet<Place>,
    /// Frames with computed jumps.
    tables: BTreeSet<Frame>,
    work: Vec<Place>,
}

impl<'c> Explorer<'c> {
    fn new(code: &'c Code, entry: u32, taken: &BTreeSet<u32>) -> Self {
        Self {
            code,
            entry,
            again: if runs_on(code, entry, MAX_FIRST) { Frame::HANDLER } else { Frame::AGAIN },
            taken: taken.iter().copied().take(MAX_TARGETS).collect(),
            frames: vec![
                Call { caller: Frame::HANDLER, depth: 0, back: Some(RETURN_ADDRESS) },
                Call { caller: Frame::SHARED, depth: MAX_DEPTH, back: None },
                Call { caller: Frame::HANDLER, depth: 0, back: Some(RETURN_ADDRESS) },
                Call { caller: Frame::HANDLER, depth: 0, back: Some(RETURN_ADDRESS) },
            ],
            callees: HashMap::new(),
            planned: HashMap::new(),
            returns: BTreeSet::new(),
            apart: BTreeSet::new(),
            tables: BTreeSet::new(),
            work: Vec::new(),
        }
    }

    fn begin_block(&mut self, place: Place) {
        if let Some(leads) = self.planned.get_mut(&place) {
            *leads = true;
        } else if self.planned.len() < MAX_INSTRUCTIONS {
            self.planned.insert(place, true);
            self.work.push(place);
        }
    }

    /// Plans instructions from `place` on, up to one that does not go on with the next.
    fn follow(&mut self, mut place: Place) {
        let mut before = None;
        loop {
            let Some(&decoded) = self.code.fetch(place.pc) else { return self.begin_block(place) };
            match self.flow(place, &decoded, before) {
                Flow::Next => {}
                Flow::Goto(to) => return self.begin_block(to),
                Flow::Branch { taken, not } => {
                    self.begin_block(taken);
                    return self.begin_block(not);
                }
                Flow::Jump { likely, table } => {
                    likely.into_iter().for_each(|to| self.begin_block(to));
                    return table.into_iter().for_each(|frame| self.begin_table(frame));
                }
                Flow::Never => return,
            }
            let next = Place { pc: after(place.pc, &decoded), ..place };
            if self.planned.contains_key(&next) || self.planned.len() >= MAX_INSTRUCTIONS {
                return self.begin_block(next);
            }
            self.planned.insert(next, false);
            (before, place) = (Some((place.pc, decoded.inst)), next);
        }
    }

    /// Where control goes from `place`; `before` is the instruction that precedes it in its block.
    fn flow(&mut self, place: Place, decoded: &Decoded, before: Option<(u32, Inst)>) -> Flow {
        let Inst { op, rd, imm, .. } = decoded.inst;
        let place = Place { frame: place.frame.behind(), ..place };
        let next = after(place.pc, decoded);
        let target = place.pc.wrapping_add(imm.cast_unsigned());
        match op {
            Op::Jal if rd == Reg::ZERO => Flow::Goto(self.go(place, target)),
            Op::Jal => Flow::Goto(Place { frame: self.callee(place.frame, next), pc: target }),
            Op::Jalr => self.computed(place, &decoded.inst, next, before),
            Op::Beq | Op::Bne | Op::Blt | Op::Bge | Op::Bltu | Op::Bgeu => {
                Flow::Branch { taken: self.jump(place.frame, target), not: Place { pc: next, ..place } }
            }
            Op::Ebreak => Flow::Never,
            _ => Flow::Next,
        }
    }

    /// Where a jump that does not come back leads to, in this function or another one.
    fn go(&mut self, from: Place, pc: u32) -> Place {
        if from.frame == Frame::SHARED || !self.code.enters_other_function(from.pc, pc) {
            return self.jump(from.frame, pc);
        }
        // Not back to the handler itself, or what it does most often would be in a loop. Others are the same wherever they came from.
        let frame = match from.frame {
            Frame::HANDLER | Frame::ANEW if pc == self.entry => Frame::ANEW,
            Frame::ANEW => Frame::HANDLER,
            frame => frame,
        };
        let place = Place { frame, pc };
        self.apart.insert(place);
        place
    }

    /// Where a jump within `frame` leads to.
    fn jump(&self, frame: Frame, pc: u32) -> Place {
        let begins = frame == Frame::HANDLER && pc == self.entry;
        Place { frame: if begins { self.again } else { frame }, pc }
    }

    /// A jump to what a register holds.
    fn computed(&mut self, place: Place, inst: &Inst, next: u32, before: Option<(u32, Inst)>) -> Flow {
        // `auipc` and `jalr` are how assemblers write far calls and jumps.
        let known = before.filter(|(_, high)| high.op == Op::Auipc && high.rd == inst.rs1);
        let known = known.map(|(pc, high)| pc.wrapping_add((high.imm.wrapping_add(inst.imm)).cast_unsigned()) & !1);
        if inst.rd != Reg::ZERO {
            // Who calls what it does not know is inlined nowhere.
            let frame = if known.is_some() { self.callee(place.frame, next) } else { self.share(next) };
            return self.jump_into(frame, known);
        }
        let call = self.frames[place.frame.0];
        // x1 and x5 are the link registers (unprivileged ISA, §2.5.1).
        let returns = known.is_none() && (inst.rs1 == Reg::RA || inst.rs1 == Reg::new(5));
        match call.back {
            Some(pc) if returns => Flow::Jump { likely: Some(Place { frame: call.caller, pc }), table: None },
            _ => self.jump_into(place.frame, known),
        }
    }

    /// A jump within `frame`, to an address that may be known.
    fn jump_into(&self, frame: Frame, known: Option<u32>) -> Flow {
        let likely = known.map(|pc| self.jump(frame, pc));
        Flow::Jump { likely, table: likely.is_none().then_some(frame) }
    }

    /// Plans what computed jumps into `frame` may lead to.
    fn begin_table(&mut self, frame: Frame) {
        if self.tables.insert(frame) {
            for index in 0..self.taken.len() {
                self.begin_block(Place { frame, pc: self.taken[index] });
            }
        }
    }

    /// Addresses of the table of a frame.
    fn table(&self, frame: Frame) -> BTreeSet<u32> {
        let returns = self.returns.iter().filter(|_| frame == Frame::SHARED).take(MAX_TARGETS);
        self.taken.iter().chain(returns).copied().collect()
    }

    /// The frame of what is called from `caller` and returns to `back`.
    fn callee(&mut self, caller: Frame, back: u32) -> Frame {
        if let Some(&frame) = self.callees.get(&(caller, back)) {
            return frame;
        }
        let frame = if self.may_inline(caller, back) {
            self.frames.push(Call { caller, depth: self.frames[caller.0].depth + 1, back: Some(back) });
            Frame(self.frames.len() - 1)
        } else {
            self.share(back)
        };
        self.callees.insert((caller, back), frame);
        frame
    }

    /// The shared frame, from which a return may go to `back`.
    fn share(&mut self, back: u32) -> Frame {
        if self.returns.insert(back) {
            self.begin_block(Place { frame: Frame::SHARED, pc: back });
        }
        Frame::SHARED
    }

    fn may_inline(&self, caller: Frame, back: u32) -> bool {
        if self.planned.len() > MAX_INLINED || self.frames[caller.0].depth >= MAX_DEPTH {
            return false;
        }
        // A call that is in its own chain is recursive.
        let mut frame = caller;
        while frame != Frame::HANDLER {
            let call = self.frames[frame.0];
            if call.back == Some(back) {
                return false;
            }
            frame = call.caller;
        }
        true
    }

    fn into_plan(mut self, entry: Place) -> Plan {
        let leaders = self.planned.iter().filter(|(_, leads)| **leads).map(|(&place, _)| place);
        let mut order: Vec<Place> = leaders.collect();
        order.sort_unstable_by_key(|place| (*place != entry, *place));
        let ids: BTreeMap<Place, BlockId> = order.iter().enumerate().map(|(id, &place)| (place, id)).collect();
        let mut blocks: Vec<Block> = order.iter().map(|&place| self.block(place, &ids)).collect();
        let instructions = blocks.iter().map(|block| block.body.len()).sum();
        let table = |&frame: &Frame| {
            let places = self.table(frame).into_iter().map(|pc| Place { frame, pc });
            places.map(|place| target(place, &ids)).filter(|target| target.block.is_some()).collect()
        };
        let tables: Vec<Vec<Target>> = self.tables.iter().map(table).collect();
        bound_ways(&mut blocks, &tables);
        let mut plan = Plan { blocks, tables, instructions };
        plan.set_apart(self.apart.iter().filter_map(|place| ids.get(place).copied()));
        plan
    }

    fn block(&mut self, leader: Place, ids: &BTreeMap<Place, BlockId>) -> Block {
        let target = |place: Place| target(place, ids);
        let mut body: Vec<(u32, Decoded)> = Vec::new();
        let mut place = leader;
        let end = loop {
            let Some(&decoded) = self.code.fetch(place.pc) else { break End::Fetch(place.pc) };
            let before = body.last().map(|(pc, decoded)| (*pc, decoded.inst));
            body.push((place.pc, decoded));
            let next = Place { pc: after(place.pc, &decoded), ..place };
            match self.flow(place, &decoded, before) {
                Flow::Next if ids.contains_key(&next) || !self.planned.contains_key(&next) => {
                    break End::Goto(target(next));
                }
                Flow::Next => place = next,
                Flow::Goto(to) => break End::Goto(target(to)),
                Flow::Branch { taken, not } => break End::Branch { taken: target(taken), not: target(not) },
                Flow::Jump { likely, table } => {
                    let table = table.and_then(|frame| self.tables.iter().position(|&other| other == frame));
                    break End::Jump { likely: likely.map(target), table };
                }
                Flow::Never => break End::Goto(Target { pc: next.pc, block: None }),
            }
        };
        let restore = self.frames[leader.frame.0].back.and_then(|back| restore(&body, back));
        Block { start: leader.pc, body, end, apart: false, restore }
    }
}

/// Where a block frees a stack frame from which it has loaded the return address, which should be `back`.
fn restore(body: &[(u32, Decoded)], back: u32) -> Option<Restore> {
    let loads = body.iter().rposition(|(_, decoded)| facts::writes(&decoded.inst) == Reg::RA)?;
    let load = &body[loads].1.inst;
    let frees = |inst: &Inst| inst.op == Op::Addi && (inst.rd, inst.rs1) == (Reg::SP, Reg::SP) && inst.imm > 0;
    let index = loads + body[loads..].iter().position(|(_, next)| frees(&next.inst))?;
    (load.op == Op::Lw && load.rs1 == Reg::SP).then_some(Restore { index, back })
}

/// Whether `count` instructions from `pc` on are followed one after the other.
fn runs_on(code: &Code, pc: u32, count: usize) -> bool {
    let mut at = pc;
    (0..count).all(|_| {
        let jumps = |op: Op| matches!(op.format(), Format::Branch | Format::J | Format::JumpRegister);
        let decoded = code.fetch(at).filter(|decoded| !jumps(decoded.inst.op));
        decoded.map(|decoded| at = after(at, decoded)).is_some()
    })
}

/// Leaves the jumps that would be too many ways to the interpreter.
fn bound_ways(blocks: &mut [Block], tables: &[Vec<Target>]) {
    let mut left = MAX_WAYS;
    for block in blocks {
        let End::Jump { table, .. } = &mut block.end else { continue };
        match left.checked_sub(table.map_or(0, |table| tables[table].len())) {
            Some(less) => left = less,
            None => *table = None,
        }
    }
}

fn target(place: Place, ids: &BTreeMap<Place, BlockId>) -> Target {
    Target { pc: place.pc, block: ids.get(&place).copied() }
}

fn after(pc: u32, decoded: &Decoded) -> u32 {
    pc.wrapping_add(u32::from(decoded.size))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Plan, Side};
    use crate::code::Code;
    use crate::inst::{Inst, Op, Reg};

    const BASE: u32 = 0x1d00_0000;

    /// The plan of a handler at the beginning of `program`, in which functions begin at these instructions too.
    fn plan(program: &[Inst], functions: &[u32]) -> Plan {
        let functions = functions.iter().map(|at| BASE + 4 * at).chain([BASE]);
        Plan::new(&Code::of(BASE, program).with_functions(functions), BASE, &BTreeSet::new())
    }

    fn sides_of(plan: &Plan) -> Option<Vec<(u32, Side)>> {
        let places = plan.blocks.iter().map(|block| block.start.wrapping_sub(BASE) / 4);
        Some(places.zip(plan.sides()?).filter(|(at, _)| *at < 100).collect())
    }

    /// A branch over the next instruction, a jump by so many, and a return.
    const OVER: Inst = Inst::new(Op::Beq).rs1(Reg::A0).imm(8);
    const RET: Inst = Inst::new(Op::Jalr).rs1(Reg::RA);

    const fn jump(by: i32) -> Inst {
        Inst::new(Op::Jal).imm(4 * by)
    }

    #[test]
    fn what_another_function_does_in_the_end_is_aside() {
        use Side::{Aside, Mostly};
        let program = [OVER, jump(2), RET, RET];
        let split = plan(&program, &[3]);
        assert_eq!(sides_of(&split), Some(vec![(0, Mostly), (1, Mostly), (2, Mostly), (3, Aside)]));
        let returns = split.blocks.iter().position(|block| block.body.is_empty()).expect("where handlers return to");
        assert_eq!(split.sides().map(|sides| sides[returns]), Some(Side::Both));
        // Of no other function, by a branch too, always.
        assert_eq!(plan(&program, &[]).sides(), None);
        assert_eq!(plan(&[Inst::new(Op::Beq).rs1(Reg::A0).imm(12), jump(2), RET, RET], &[3]).sides(), None);
        assert_eq!(plan(&[jump(2), RET, RET], &[2]).sides(), None);
        // It goes on behind where it came from.
        assert_eq!(plan(&[OVER, jump(2), RET, OVER, jump(-2), RET], &[3]).sides(), None);
    }

    #[test]
    fn what_goes_to_the_handler_again_goes_to_a_copy() {
        use Side::{Aside, Mostly};
        let again = plan(&[OVER, jump(2), RET, jump(-3)], &[3]);
        let expected = vec![(0, Mostly), (1, Mostly), (2, Mostly), (3, Aside), (0, Aside), (1, Aside), (2, Aside)];
        assert_eq!(sides_of(&again), Some(expected));
    }

    #[test]
    fn no_way_leads_back_to_where_tasks_begin() {
        // c.addi a0, -1; c.bnez a0, -2; ret
        let bytes = [0x157d_u16, 0xfd7d, 0x8082].map(u16::to_le_bytes).concat();
        let plan = Plan::new(&Code::at(0x1d00_0000, &bytes), 0x1d00_0000, &BTreeSet::new());
        let successors: Vec<usize> = (0..plan.blocks.len()).flat_map(|block| plan.successors(block)).collect();
        assert!(!successors.contains(&0), "{successors:?}");
        let begins = plan.blocks.iter().filter(|block| block.start == 0x1d00_0000).count();
        assert_eq!((begins, plan.instructions), (2, 5), "a copy of the block, in which the loop stays");
    }
}
