//! Rows: a word or several next to each other of which a loop of one block does nothing but add all of them, in each turn, to one
//! [total](super::totals).

use crate::inst::{Format, Inst, Op, Reg};
use crate::jit::accesses::may_be_device;
use crate::jit::facts::{Known, Regs, reads, writes};
use crate::jit::plan::{Block, BlockId, End, Target};
use crate::jit::totals::totals;

/// Words of a vector of the host.
pub(crate) const LANES: u32 = 4;
/// Most words of a row.
const MOST_WORDS: usize = 32;
/// Bytes of a word.
const WORD: i32 = 4;

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// What its words are added to.
    pub(crate) total: Reg,
    /// Indices of the loads. The first is that of the lowest address.
    pub(crate) loads: Vec<usize>,
    /// Indices of the additions.
    pub(crate) additions: Vec<usize>,
    /// How its loop goes on, if that is known.
    pub(crate) even: Option<Even>,
}

/// A loop that goes from row to row next to each other, and does nothing besides but count: several turns of it can be done at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Even {
    /// What each turn adds to registers.
    pub(crate) steps: Vec<(Reg, i32)>,
    /// One of these, which ends the loop when it is the same as `end`, which stays as it is.
    pub(crate) counter: (Reg, i32),
    pub(crate) end: Reg,
}

impl Even {
    /// Whether the turns that are left are found by the counter's bits.
    pub(crate) const fn counts_by_bits(&self) -> bool {
        self.counter.1.unsigned_abs().is_power_of_two()
    }

    /// That of a block with such a row. `base` is what its words are loaded from.
    fn of(id: BlockId, block: &Block, row: &Row, base: Reg) -> Option<Self> {
        let (last, rest) = block.body.split_last()?;
        let mut steps: Vec<(Reg, i32)> = Vec::new();
        for (index, (_, decoded)) in rest.iter().enumerate().filter(|(index, _)| !row.has(*index)) {
            let Inst { op, rd, rs1, imm, .. } = decoded.inst;
            let is_step = op == Op::Addi && rd == rs1 && rd != Reg::ZERO;
            let goes_on = rd != base || row.loads.iter().all(|load| *load < index);
            if !is_step || !goes_on || steps.iter().any(|(reg, _)| *reg == rd) {
                return None;
            }
            steps.push((rd, imm));
        }
        let Inst { op, rs1, rs2, .. } = last.1.inst;
        let (_, leaves_if_taken) = way_out(id, block)?;
        let until_same = op == if leaves_if_taken { Op::Beq } else { Op::Bne };
        let step_of = |reg: Reg| steps.iter().copied().find(|(other, _)| *other == reg);
        let (counter, end) = step_of(rs1).map(|counter| (counter, rs2)).or_else(|| Some((step_of(rs2)?, rs1)))?;
        let is_written = rest.iter().any(|(_, decoded)| writes(&decoded.inst) == end);
        let is_next = step_of(base) == Some((base, row.bytes().cast_signed()));
        (until_same && is_next && counter.1 != 0 && (end == Reg::ZERO || !is_written)).then_some(Self {
            steps,
            counter,
            end,
        })
    }
}

impl Row {
    /// That of a block, if it leads to itself and elsewhere. At its start `known` is known, and behind it the registers `live` may be read;
    /// `any_device` as in [`may_be_device`]. Such a block does nothing but load the row and compute.
    pub(crate) fn of(id: BlockId, block: &Block, known: &Known, live: Regs, any_device: bool) -> Option<Self> {
        let of = |total| {
            let (row, base) = Search::new(total).search(block, known.clone(), live, any_device)?;
            let even = Even::of(id, block, &row, base);
            // Several turns may fill a vector where one does not.
            let is_row = row.fills_vectors() || even.is_some();
            is_row.then_some(Self { even, ..row })
        };
        let is_loop = way_out(id, block).is_some() && block.restore.is_none();
        let candidates = if is_loop { totals(block) } else { Regs(0) };
        candidates.iter().filter(|&total| known.constant(total).is_none()).find_map(of)
    }

    /// Bytes of it.
    pub(crate) fn bytes(&self) -> u32 {
        // At most 32 words.
        4 * u32::try_from(self.loads.len()).unwrap_or(0)
    }

    /// Whether it is as many words as one or more vectors.
    pub(crate) fn fills_vectors(&self) -> bool {
        self.bytes().is_multiple_of(4 * LANES)
    }

    /// Whether an instruction of the block loads a word of it or adds some up.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.loads.contains(&index) || self.additions.contains(&index)
    }
}

/// Where a block leads but to itself, and whether it does so when its branch is taken. `None` if it is no loop, or has no end.
pub(crate) fn way_out(id: BlockId, block: &Block) -> Option<(&Target, bool)> {
    let End::Branch { taken, not } = &block.end else { return None };
    match [taken, not].map(|target| target.block == Some(id)) {
        [true, false] => Some((not, false)),
        [false, true] => Some((taken, true)),
        _ => None,
    }
}

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// What the row has nothing to do with.
    Other,
    /// Words of the row, or the total, or sums of these: nothing else has them.
    Part,
    /// The same, but they were added to others: nobody may look there any more.
    Spent,
}

/// A look at a block's instructions in turn.
struct Search {
    total: Reg,
    holds: [Holds; 32],
    /// What holds the address, as long as it is known where that points.
    base: Option<Reg>,
    /// How far it was moved.
    moved: i32,
    /// Distances of the words from where it pointed.
    words: Vec<i32>,
    loads: Vec<usize>,
    additions: Vec<usize>,
}

impl Search {
    fn new(total: Reg) -> Self {
        let mut holds = [Holds::Other; 32];
        holds[total.index()] = Holds::Part;
        Self { total, holds, base: None, moved: 0, words: Vec::new(), loads: Vec::new(), additions: Vec::new() }
    }

    /// The row, and what its words are loaded from.
    fn search(mut self, block: &Block, mut known: Known, live: Regs, any_device: bool) -> Option<(Row, Reg)> {
        let mut from = None;
        for (index, (_, decoded)) in block.body.iter().enumerate() {
            let inst = &decoded.inst;
            match inst.op {
                Op::Lw => {
                    // One that is known does not lead from row to row.
                    let is_known = known.constant(inst.rs1).is_some();
                    if is_known || may_be_device(inst, &known, any_device) {
                        return None;
                    }
                    self.load(index, inst)?;
                    from = self.base;
                }
                Op::Add if reads(inst).iter().any(|reg| self.holds[reg.index()] != Holds::Other) => {
                    self.add(index, inst)?;
                }
                _ => self.other(inst)?,
            }
            known.step_in(block, index);
        }
        let ends_well = |reg: Reg| match self.holds[reg.index()] {
            Holds::Other => reg != self.total,
            Holds::Part => reg == self.total,
            Holds::Spent => !live.has(reg),
        };
        let is_row = Regs::ALL.iter().all(ends_well) && self.is_row();
        let Self { total, loads, additions, .. } = self;
        from.filter(|_| is_row).map(|from| (Row { total, loads, additions, even: None }, from))
    }

    /// Whether the words follow each other, the first one first.
    fn is_row(&self) -> bool {
        let Some(&first) = self.words.first() else { return false };
        let mut words = self.words.clone();
        words.sort_unstable();
        let follow = words.iter().zip((first..).step_by(WORD as usize)).all(|(word, at)| *word == at);
        follow && words.len() <= MOST_WORDS
    }

    fn load(&mut self, index: usize, inst: &Inst) -> Option<()> {
        if self.loads.is_empty() {
            self.base = Some(inst.rs1);
        }
        if self.base != Some(inst.rs1) || self.holds[inst.rs1.index()] != Holds::Other {
            return None;
        }
        self.words.push(self.moved.checked_add(inst.imm)?);
        self.loads.push(index);
        self.write(inst.rd, Holds::Part)
    }

    fn add(&mut self, index: usize, inst: &Inst) -> Option<()> {
        let parts = [inst.rs1, inst.rs2];
        if inst.rs1 == inst.rs2 || parts.iter().any(|reg| self.holds[reg.index()] != Holds::Part) {
            return None;
        }
        parts.iter().for_each(|reg| self.holds[reg.index()] = Holds::Spent);
        self.additions.push(index);
        self.write(inst.rd, Holds::Part)
    }

    /// What neither loads nor adds a part.
    fn other(&mut self, inst: &Inst) -> Option<()> {
        let looks = reads(inst).iter().any(|reg| self.holds[reg.index()] != Holds::Other);
        let computes = inst.op.format().computes() || inst.op.format() == Format::Branch;
        if looks || !computes {
            return None;
        }
        let rd = writes(inst);
        if self.base == Some(rd) && inst.op == Op::Addi && inst.rs1 == rd {
            self.moved = self.moved.checked_add(inst.imm)?;
            return Some(());
        }
        if rd == Reg::ZERO { Some(()) } else { self.write(rd, Holds::Other) }
    }

    /// Has a register hold something else, unless that would be nowhere, or nothing would have a part any more.
    fn write(&mut self, rd: Reg, holds: Holds) -> Option<()> {
        if rd == Reg::ZERO || self.holds[rd.index()] == Holds::Part {
            return None;
        }
        self.holds[rd.index()] = holds;
        self.base = self.base.filter(|base| *base != rd);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Even, Row};
    use crate::code::Code;
    use crate::inst::{Inst, Op, Reg};
    use crate::jit::facts::{Facts, Regs};
    use crate::jit::plan::Plan;

    const BASE: u32 = 0x1d00_0000;
    const TOTAL: Reg = Reg::A0;
    const FROM: Reg = Reg::A1;
    const TURNS: Reg = Reg::new(20);
    /// What words are loaded to.
    const A: Reg = Reg::new(12);
    const B: Reg = Reg::new(13);
    const C: Reg = Reg::new(14);
    const D: Reg = Reg::new(15);
    const OTHER: Reg = Reg::new(16);

    const MOVE: Inst = Inst::new(Op::Addi).rd(FROM).rs1(FROM).imm(16);
    const COUNT: Inst = Inst::new(Op::Addi).rd(TURNS).rs1(TURNS).imm(-1);

    /// The row of a loop behind which TOTAL, where it is from and OTHER are looked at.
    fn of(body: &[Inst]) -> Option<Row> {
        with_devices(body, false)
    }

    fn with_devices(body: &[Inst], any_device: bool) -> Option<Row> {
        let begin = [TOTAL, FROM, TURNS, OTHER].map(|rd| Inst::new(Op::Lw).rd(rd).rs1(Reg::SP));
        let back = Inst::new(Op::Bne).rs1(TURNS).imm(-4 * body.len() as i32);
        let end = [TOTAL, FROM, OTHER].map(|rs2| Inst::new(Op::Sw).rs1(Reg::SP).rs2(rs2));
        let program = [&begin, body, &[back], &end, &[Inst::new(Op::Jalr).rs1(Reg::RA)]].concat();
        let mut plan = Plan::new(&Code::of(BASE, &program), BASE, &BTreeSet::new());
        let facts = Facts::new(&mut plan, Regs(0), 0);
        let is_loop = |&id: &usize| plan.successors(id).any(|to| to == id);
        let id = (0..plan.blocks.len()).find(is_loop).expect("there is a loop");
        let live = *facts.live_within(&plan, id).last().expect("it ends");
        Row::of(id, &plan.blocks[id], facts.known(id).expect("it is reached"), live, any_device)
    }

    fn load(rd: Reg, imm: i32) -> Inst {
        Inst::new(Op::Lw).rd(rd).rs1(FROM).imm(imm)
    }

    fn add(rd: Reg, rs1: Reg, rs2: Reg) -> Inst {
        Inst::new(Op::Add).rd(rd).rs1(rs1).rs2(rs2)
    }

    /// A row of four words.
    fn row() -> [Inst; 10] {
        [
            load(A, -4),
            load(B, 0),
            add(TOTAL, A, TOTAL),
            load(C, 4),
            load(D, 8),
            add(A, C, B),
            add(TOTAL, TOTAL, D),
            add(TOTAL, A, TOTAL),
            MOVE,
            COUNT,
        ]
    }

    /// That loop, with one instruction changed.
    fn changed(at: usize, to: Inst) -> Option<Row> {
        let mut body = row();
        body[at] = to;
        of(&body)
    }

    #[test]
    fn words_that_are_added_in_any_order_are_a_row() {
        let even = Some(Even { steps: vec![(FROM, 16), (TURNS, -1)], counter: (TURNS, -1), end: Reg::ZERO });
        let found = Row { total: TOTAL, loads: vec![0, 1, 3, 4], additions: vec![2, 5, 6, 7], even };
        assert_eq!(of(&row()), Some(found.clone()));
        assert_eq!((found.bytes(), found.has(5), found.has(8)), (16, true, false));
        // The last ones in another order.
        let mut body = row();
        (body[3], body[4]) = (load(C, 8), load(D, 4));
        assert_eq!(of(&body), Some(found));
        // The total is another register meanwhile, and one register has all words in turn.
        let into = |rd, rs, at| [load(A, at), add(rd, rs, A)];
        let body = [into(B, TOTAL, 0), into(B, B, 4), into(TOTAL, B, 8), into(TOTAL, TOTAL, 12), [MOVE, COUNT]];
        assert_eq!(of(&body.concat()).map(|row| row.loads), Some(vec![0, 2, 4, 6]));
        // It goes on between the words.
        let on = |rd, rs| [load(A, 0), Inst::new(Op::Addi).rd(FROM).rs1(FROM).imm(4), add(rd, rs, A)];
        let body = [&on(B, TOTAL)[..], &on(B, B), &on(B, B), &on(TOTAL, B), &[COUNT]].concat();
        assert_eq!(of(&body).map(|row| row.loads), Some(vec![0, 3, 6, 9]));
    }

    #[test]
    fn a_loop_that_does_something_else_besides_is_not_even() {
        let is_even = |at, to| changed(at, to).map(|row| row.even.is_some());
        assert_eq!(is_even(9, COUNT.imm(-3)), Some(true));
        for (at, to) in [
            // The next row is not behind this one, the loop does not count, or something else is computed.
            (8, MOVE.imm(32)),
            (8, MOVE.imm(-16)),
            (8, Inst::new(Op::Add).rd(FROM).rs1(FROM).rs2(OTHER)),
            (8, Inst::new(Op::Xori).rd(FROM).rs1(FROM).imm(16)),
            (8, Inst::new(Op::Addi).rd(OTHER).rs1(FROM).imm(16)),
            (9, Inst::new(Op::Addi).rd(TURNS).rs1(OTHER).imm(-1)),
            (9, Inst::new(Op::Addi).rd(OTHER).rs1(OTHER).imm(-1)),
            (9, COUNT.imm(0)),
            (9, MOVE),
        ] {
            assert_eq!(is_even(at, to), Some(false), "{at}: {to:?}");
        }
        // It goes on between the words.
        let mut body = row();
        (body[3], body[4], body[8]) = (MOVE, load(C, -12), load(D, -8));
        (body[5], body[6]) = (add(A, C, B), COUNT);
        assert_eq!(of(&body).and_then(|row| row.even), None);
    }

    #[test]
    fn what_fills_no_vector_is_a_row_if_several_turns_are_one_behind_the_other() {
        let words = |count: i32, by: i32| {
            let all = (0..count).flat_map(|word| [load(A, 4 * word), add(TOTAL, TOTAL, A)]);
            of(&all.chain([MOVE.imm(by), COUNT]).collect::<Vec<_>>())
        };
        for count in [1, 2, 3, 5] {
            assert!(words(count, 4 * count).is_some_and(|row| row.even.is_some() && !row.fills_vectors()), "{count}");
            assert_eq!(words(count, 4 * count + 4), None);
        }
        assert!(words(4, 20).is_some_and(|row| row.even.is_none() && row.fills_vectors()));
    }

    #[test]
    fn other_words_are_none() {
        let all = |words: &[i32]| {
            let words = words.iter().flat_map(|at| [load(A, *at), add(TOTAL, TOTAL, A)]);
            of(&words.chain([MOVE, COUNT]).collect::<Vec<_>>()).is_some()
        };
        assert!(all(&[0, 4, 8, 12]) && all(&[2, 10, 6, 14]) && all(&[0, 4, 8, 12, 16, 20, 24, 28]));
        // Too few or too many of them; not one by one; twice the same; the first one is not the first; overlapping.
        for words in [&[][..], &[0], &[0, 4, 8], &[0, 4, 8, 12, 16], &[0, 4, 8, 16], &[0, 4, 4, 8], &[4, 0, 8, 12]] {
            assert!(!all(words), "{words:?}");
        }
        assert!(!all(&[0, 2, 4, 6]) && !all(&(0..36).map(|word| 4 * word).collect::<Vec<_>>()));
        assert!(all(&(0..32).map(|word| 4 * word).collect::<Vec<_>>()));
    }

    #[test]
    fn words_of_which_something_else_becomes_are_none() {
        let or = |rd, rs1| Inst::new(Op::Or).rd(rd).rs1(rs1);
        for (at, to) in [
            // Something else is done with a word, or a sum, or the total, or one is thrown away.
            (5, Inst::new(Op::Sub).rd(A).rs1(C).rs2(B)),
            (5, add(Reg::ZERO, C, B)),
            (9, Inst::new(Op::Add).rd(TURNS).rs1(TURNS).rs2(B)),
            (8, or(OTHER, A)),
            (9, or(TURNS, TOTAL)),
            (4, load(C, 8)),
            (4, load(Reg::ZERO, 8)),
            (6, add(TOTAL, TOTAL, OTHER)),
            (6, add(TOTAL, D, D)),
            (7, or(TOTAL, A)),
            (7, add(B, A, TOTAL)),
            // It is looked at behind the loop.
            (7, add(OTHER, A, TOTAL)),
            (3, load(OTHER, 4)),
        ] {
            assert_eq!(changed(at, to), None, "{at}: {to:?}");
        }
        // What is looked at behind the loop was in it a word.
        let with = |reg| {
            let mut body = row();
            (body[4], body[6]) = (load(reg, 8), add(TOTAL, TOTAL, reg));
            of(&body).is_some()
        };
        assert!(with(D) && !with(OTHER));
    }

    #[test]
    fn words_of_elsewhere_are_none() {
        let from = |base: Reg| load(C, 4).rs1(base);
        assert!(changed(8, Inst::new(Op::Add).rd(FROM).rs1(FROM).rs2(OTHER)).is_some());
        for (at, to) in [
            (3, from(OTHER)),
            (3, from(Reg::SP)),
            (3, from(A)),
            (3, Inst::new(Op::Lhu).rd(C).rs1(FROM).imm(4)),
            (1, load(FROM, 0)),
            (2, Inst::new(Op::Add).rd(FROM).rs1(FROM).rs2(OTHER)),
            (2, MOVE),
            (8, Inst::new(Op::Sw).rs1(FROM).rs2(OTHER)),
            (8, Inst::new(Op::AmoaddW).rs1(FROM).rs2(OTHER)),
            (8, Inst::new(Op::Fence)),
            (8, Inst::new(Op::Ecall)),
            (8, load(OTHER, 16)),
        ] {
            assert_eq!(changed(at, to), None, "{at}: {to:?}");
        }
        assert_eq!(with_devices(&row(), true), None);
        // It is where it always is.
        let moved = |inst: Inst| if inst.op == Op::Lw { inst.rs1(Reg::ZERO) } else { inst };
        assert_eq!(of(&row().map(moved)), None);
    }
}
