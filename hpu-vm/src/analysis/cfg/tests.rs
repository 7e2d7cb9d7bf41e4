//! Tests of graphs of small programs.

use std::collections::BTreeSet;

use super::regions::Region;
use super::{Cfg, Cost, Functions, LoopForest, Regions, Scope, Start};
use crate::code::Code;
use crate::inst::{Inst, Op, Reg};

const BASE: u32 = 0x1d00_0000;
const COST: Cost = Cost { access: 1 };

/// Branch over the next instruction, and a return.
const OVER: Inst = Inst::new(Op::Beq).rs1(Reg::A0).imm(8);
const RET: Inst = Inst::new(Op::Jalr).rs1(Reg::RA);
const NOP: Inst = Inst::new(Op::Addi);

/// A jump by some instructions.
const fn jump(by: i32) -> Inst {
    Inst::new(Op::Jal).imm(4 * by)
}

const fn call(by: i32) -> Inst {
    Inst::new(Op::Jal).rd(Reg::RA).imm(4 * by)
}

fn graph(code: &Code, entry: u32) -> Cfg {
    let taken = BTreeSet::new();
    let functions = Functions::new(code, &[entry], &taken);
    super::handler(Scope { code, functions: &functions, taken: &taken, cost: COST, parts_cold: true }, entry)
}

/// The graph of a handler that begins with the first instruction.
pub(crate) fn handler_of(program: &[Inst]) -> Cfg {
    graph(&Code::of(BASE, program), BASE)
}

/// The graph of a handler at instruction `entry`.
pub(crate) fn handler_at(program: &[Inst], entry: u32) -> Cfg {
    graph(&Code::of(BASE, program), BASE + 4 * entry)
}

/// Index of the instruction at an address.
pub(crate) fn index(pc: u32) -> u32 {
    (pc - BASE) / 4
}

/// Index of the first instruction of each block of the code, and whether the block is cold.
fn blocks(cfg: &Cfg) -> Vec<(u32, bool)> {
    let blocks = cfg.blocks.iter().filter(|block| !block.body.is_empty());
    blocks.map(|block| (index(block.start), block.cold)).collect()
}

fn with_cold(program: &[Inst], cold: std::ops::Range<u32>) -> Cfg {
    let range = BASE + 4 * cold.start..BASE + 4 * cold.end;
    graph(&Code::of(BASE, program).with_cold(std::iter::once(range)), BASE)
}

#[test]
fn cold_code_is_left_out_and_its_address_is_an_exit() {
    let program = [OVER, jump(2), RET, RET];
    let cfg = with_cold(&program, 3..4);
    assert_eq!(blocks(&cfg), [(0, false), (1, false), (2, false), (3, true)]);
    assert_eq!((cfg.exits.iter().map(|&pc| index(pc)).collect::<Vec<_>>(), cfg.instructions), (vec![3], 3));
    let warm = handler_of(&program);
    assert!(warm.exits.is_empty() && warm.blocks.iter().all(|block| !block.cold));
}

#[test]
fn cold_code_that_leads_back_does_not_make_a_loop() {
    let cfg = with_cold(&[OVER, jump(2), RET, jump(-3)], 3..4);
    assert!(LoopForest::new(&cfg).loops.is_empty());
    let returns = |cold: bool| cfg.blocks.iter().filter(|block| block.body.is_empty() && block.cold == cold).count();
    assert_eq!(returns(false), 1);
}

#[test]
fn code_behind_a_call_of_cold_code_is_an_exit() {
    // 0: beqz a0, 2; 1: call 3; 2: ret; 3: ret
    let cfg = with_cold(&[OVER, call(2), RET, RET], 3..4);
    assert_eq!(cfg.exits.iter().map(|&pc| index(pc)).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn no_way_leads_back_to_where_tasks_begin() {
    // c.addi a0, -1; c.bnez a0, -2; ret
    let bytes = [0x157d_u16, 0xfd7d, 0x8082].map(u16::to_le_bytes).concat();
    let cfg = graph(&Code::at(BASE, &bytes), BASE);
    assert!(cfg.predecessors[0].is_empty());
    let begins = cfg.blocks.iter().filter(|block| block.start == BASE).count();
    assert_eq!((begins, cfg.instructions), (2, 5), "a copy of the block, in which the loop stays");
}

#[test]
fn recursive_calls_leave_the_region() {
    // 0: call 2; 1: ret; 2: beqz a0, 4; 3: call 2; 4: ret
    let cfg = handler_of(&[call(2), RET, OVER, call(-1), RET]);
    assert_eq!(cfg.exits.iter().map(|&pc| index(pc)).collect::<Vec<_>>(), [1, 2, 4], "return addresses, and the call");
}

#[test]
fn shared_code_is_divided_by_functions_and_entered_at_calls_and_returns() {
    let code = Code::of(BASE, &[call(2), RET, OVER, call(-1), RET]);
    let taken = BTreeSet::new();
    let functions = Functions::new(&code, &[BASE], &taken);
    let regions = Regions::new(&code, functions, &[1, 2, 4].map(|at| BASE + 4 * at).into(), &taken, COST);
    let entries = |region: &Region| region.entries.iter().map(|&pc| index(pc)).collect::<Vec<_>>();
    assert_eq!(regions.regions.iter().map(entries).collect::<Vec<_>>(), [vec![1], vec![2, 4]]);
    let scope = Scope { code: &code, functions: &regions.functions, taken: &taken, cost: COST, parts_cold: true };
    let cfg = super::shared(scope, &regions.regions[1]);
    let Start::Points(points) = &cfg.start else { panic!("a shared region") };
    assert_eq!(points.iter().map(|&id| index(cfg.blocks[id].start)).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(cfg.instructions, 3);
}

#[test]
fn long_functions_are_divided() {
    let program = [&[NOP; 9000][..], &[RET]].concat();
    let code = Code::of(BASE, &program);
    let taken = BTreeSet::new();
    let functions = Functions::new(&code, &[BASE], &taken);
    let regions = Regions::new(&code, functions, &BTreeSet::from([BASE]), &taken, COST);
    let starts: Vec<u32> = regions.regions.iter().map(|region| index(region.extent.start)).collect();
    assert_eq!(starts, [0, 4000, 8000]);
    assert!(regions.regions.iter().all(|region| region.entries.len() == 1));
}

/// Heads and depths of the loops of a program, by instruction.
fn loops(program: &[Inst]) -> Vec<(u32, usize)> {
    let cfg = handler_of(program);
    let forest = LoopForest::new(&cfg);
    forest.loops.iter().map(|found| (index(cfg.blocks[found.head].start), found.depth)).collect()
}

#[test]
fn loops_are_nested() {
    let back = |by: i32| Inst::new(Op::Bne).rs1(Reg::A0).imm(-4 * by);
    assert_eq!(loops(&[NOP, NOP, NOP, back(1), back(3), RET]), [(2, 2), (1, 1)]);
    // Two branches to one head are one loop.
    assert_eq!(loops(&[NOP, NOP, NOP, back(1), back(2), RET]), [(2, 1)]);
    // A way into its middle makes it none.
    assert_eq!(loops(&[NOP, OVER, NOP, NOP, back(2), RET]), []);
    assert_eq!(loops(&[NOP, RET]), []);
}
