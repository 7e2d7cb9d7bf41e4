//! Atomics on words of tables whose index is known to be small. Translated code must agree with the interpreter at the ends of
//! the memory that a task may access, beyond them, and where a table is shorter than the index allows.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use std::collections::BTreeMap;

use assembly::{A2, A3, A4, A5, Assembly, S0, T0, T1};
use guest::{CODE, Guest, MACHINE, OWN, Way, task, translate};
use hpu_vm::jit::{Executor, Limits, Task};
use hpu_vm::{Checks, Code, Exit, NoDevice, Op, Reg};
use spin_abi::fault::Cause;
use spin_abi::map::{L1_ALIAS, L2_BASE, PAGE};

/// What the index is said to be at most.
const LIMITS: [u32; 4] = [0, 7, 1024, 1 << 18];

/// How the address of a word is made of those of table and index.
#[derive(Clone, Copy)]
enum Sum {
    TableFirst,
    IndexFirst,
    Shifted,
}

/// What is done in a loop, three times.
#[derive(Clone, Copy, Debug)]
enum Body {
    /// A word.
    Once,
    /// Two of a table that stays where it is: such a loop is made twice.
    Twice,
    /// Two, of a table that goes on by a word between them.
    Moving,
}

/// Works on consecutive words of the table that the first data word points to. The second data word has the first index.
/// Indices above `limit` are skipped.
fn program(limit: u32, op: Op, rd: Reg, sum: Sum, body: Body) -> Code {
    let program = Assembly::new().li(S0, OWN.data).imm(Op::Lw, A2, S0, 0).imm(Op::Lw, A3, S0, 4);
    let program = program.li(T0, limit).li(T1, 3);
    let again = program.pc();
    let word = |program: Assembly| {
        let over = program.pc() + 16;
        let program = program.branch(Op::Bltu, T0, A3, over).imm(Op::Slli, A4, A3, 2);
        let program = match sum {
            Sum::TableFirst => program.op(Op::Add, A4, A2, A4),
            Sum::IndexFirst => program.op(Op::Add, A4, A4, A2),
            Sum::Shifted => program.op(Op::Sh2add, A4, A3, A2),
        };
        let program = program.op(op, rd, A4, T1);
        assert_eq!(program.pc(), over, "where what is passed over ends");
        program.imm(Op::Addi, A3, A3, 1)
    };
    let program = match body {
        Body::Once => word(program),
        Body::Twice => word(word(program)),
        Body::Moving => word(word(program).imm(Op::Addi, A2, A2, 4)),
    };
    let program = program.imm(Op::Addi, T1, T1, -1).branch(Op::Bne, T1, Reg::ZERO, again);
    program.store(Op::Sw, A5, S0, 8).ret().code()
}

/// Tables (base, index of the first word): such that the words are the last ones of a range, or behind it, or before it.
fn tables() -> Vec<(u32, u32)> {
    let ranges = OWN.ranges().map(|(_, base, len)| (base, len));
    let alias = L1_ALIAS + (MACHINE.scratchpad_base(OWN.cluster) - MACHINE.l1_base(OWN.cluster));
    let nowhere = [(alias, 0x1204), (L2_BASE - PAGE, PAGE), (0, PAGE), (CODE, 8), (MACHINE.scratchpad_base(0), PAGE)];
    let mut tables = Vec::new();
    for (base, len) in ranges.into_iter().chain(nowhere) {
        for end in [len & !3, len.next_multiple_of(PAGE)] {
            for index in [0_u32, 1, 5, 7, 1000] {
                let words = [-16, -12, -4, 0, 4].map(|from: i32| base.wrapping_add(end).wrapping_add_signed(from));
                tables.extend(words.map(|word| (word.wrapping_sub(4 * index), index)));
            }
        }
        tables.extend([(base, 0), (base.wrapping_sub(4), 0), (base.wrapping_sub(8), 1), (base + 1, 0), (base + 2, 3)]);
    }
    tables
}

fn run(
    executor: &Executor,
    guest: &mut Guest,
    checks: Checks,
    task: &Task<'_>,
    (base, index): (u32, u32),
) -> (Exit, Vec<u8>) {
    guest.fill(1);
    guest.slot.view().set_checks(checks);
    guest.set_word(OWN.data, base);
    guest.set_word(OWN.data + 4, index);
    let exit = executor.run(&mut guest.slot, &mut guest.frame, task, &mut NoDevice);
    (exit, guest.memory())
}

#[test]
fn words_of_tables_are_where_the_interpreter_finds_them() {
    const AMOS: [(Op, Reg); 4] =
        [(Op::AmoaddW, Reg::ZERO), (Op::AmoaddW, A5), (Op::AmoswapW, A5), (Op::AmomaxuW, Reg::ZERO)];
    const SUMS: [(Sum, Body); 4] = [
        (Sum::TableFirst, Body::Once),
        (Sum::IndexFirst, Body::Twice),
        (Sum::Shifted, Body::Twice),
        (Sum::Shifted, Body::Moving),
    ];
    let executor = Executor::new().expect("a timer");
    let mut ends = BTreeMap::new();
    let amos = LIMITS.into_iter().zip(AMOS);
    for ((limit, (op, rd)), (sum, body)) in amos.flat_map(|amo| SUMS.map(|sum| (amo, sum))) {
        let code = program(limit, op, rd, sum, body);
        let mut guest = Guest::new(OWN, &code, 1);
        for checks in [Checks::Page, Checks::Exact] {
            let expected: Vec<_> = tables()
                .into_iter()
                .map(|table| (table, run(&executor, &mut guest, checks, &task(OWN, &code, None), table)))
                .collect();
            for way in Way::translated(checks) {
                let translation = way.options.map(|options| translate(&code, &[], options));
                let limits = Limits { time: None, instructions: way.counts().then_some(1000) };
                let task = Task { limits, ..task(OWN, &code, translation.as_ref()) };
                for (table, (exit, memory)) in &expected {
                    let found = run(&executor, &mut guest, checks, &task, *table);
                    let name = format!("at most {limit}, {table:#x?}, {body:?}, {}", way.name());
                    assert_eq!(found.0, *exit, "{name}");
                    assert!(found.1 == *memory, "{name}: memory");
                }
            }
            for (_, (exit, _)) in expected {
                let name = match exit {
                    Exit::Fault(fault) => format!("{:?}", fault.cause),
                    other => format!("{other:?}"),
                };
                *ends.entry(name).or_insert(0) += 1;
            }
        }
    }
    for end in ["Returned", "StoreAccess", "StoreMisaligned"] {
        assert!(ends.get(end).is_some_and(|&count| count > 100), "not a mixture: {ends:?}");
    }
}

/// Where a sum is thrown away, address 0 is still what x0 holds.
#[test]
fn sums_that_go_nowhere_are_no_addresses() {
    let executor = Executor::new().expect("a timer");
    for sum in [Op::Add, Op::Sh1add, Op::Sh2add, Op::Sh3add] {
        let program = Assembly::new().li(S0, OWN.data).imm(Op::Lw, A2, S0, 0).imm(Op::Lw, A3, S0, 4);
        let program = program.imm(Op::Andi, A3, A3, 12).li(T1, 3).op(sum, Reg::ZERO, A3, A2);
        let code = program.op(Op::AmoaddW, A5, Reg::ZERO, T1).ret().code();
        let table = (MACHINE.stack_base(OWN.cluster, OWN.hpu), 4);
        let mut guest = Guest::new(OWN, &code, 1);
        for checks in [Checks::Page, Checks::Exact] {
            let expected = run(&executor, &mut guest, checks, &task(OWN, &code, None), table);
            assert!(
                matches!(expected.0, Exit::Fault(fault) if fault.cause == Cause::StoreAccess && fault.address == 0)
            );
            for way in Way::translated(checks) {
                let translation = way.options.map(|options| translate(&code, &[], options));
                let limits = Limits { time: None, instructions: way.counts().then_some(1000) };
                let found = run(
                    &executor,
                    &mut guest,
                    checks,
                    &Task { limits, ..task(OWN, &code, translation.as_ref()) },
                    table,
                );
                assert!(found == expected, "{}, {}: {:?}", sum.mnemonic(), way.name(), found.0);
            }
        }
    }
}

/// Works on two words of a table in each of two rounds, the index in which is the next data word but two. Before the second one the table moves
/// by the third data word: always, or where a branch on the way back chooses that it does, unless it is 0.
fn moves_on_the_way_back(chosen: bool) -> Code {
    let program = Assembly::new().li(S0, OWN.data).imm(Op::Lw, A2, S0, 0).imm(Op::Lw, A5, S0, 8).li(T1, 2);
    let again = program.pc();
    let program = program.op(Op::Sh2add, A4, T1, S0).imm(Op::Lw, A3, A4, 8).imm(Op::Srli, A3, A3, 14);
    let program = program.op(Op::Sh2add, A4, A3, A2).op(Op::AmoaddW, Reg::ZERO, A4, T1);
    let program = program.op(Op::Sh2add, A4, A3, A2).op(Op::AmoaddW, Reg::ZERO, A4, T1).imm(Op::Addi, T1, T1, -1);
    if !chosen {
        return program.op(Op::Add, A2, A2, A5).branch(Op::Bne, T1, Reg::ZERO, again).ret().code();
    }
    let on = program.pc() + 8;
    let program = program.branch(Op::Bne, T1, Reg::ZERO, on).ret();
    program.branch(Op::Beq, A5, Reg::ZERO, again).op(Op::Add, A2, A2, A5).jal(Reg::ZERO, again).code()
}

#[test]
fn a_table_that_moves_is_looked_for_anew() {
    let executor = Executor::new().expect("a timer");
    [false, true].into_iter().for_each(|chosen| moves(&executor, &moves_on_the_way_back(chosen)));
}

/// Has the table of such a program move to where plain atomics may not be.
fn moves(executor: &Executor, code: &Code) {
    let stack = MACHINE.stack_base(OWN.cluster, OWN.hpu);
    // Where the table is next, and the index there: in L2, on no word, and where the guest's addresses end, with an index that leads farther
    // beyond that than anything does which is refused.
    for (next, index) in
        [(stack + 64, 1), (OWN.data + 64, 1), (stack + 66, 1), (OWN.data + 66, 1), (0xffff_fff0, 0x3_0000)]
    {
        let run = |task: &Task<'_>| {
            let mut guest = Guest::new(OWN, task.code, 1);
            let words = [stack, 0, next.wrapping_sub(stack), index << 14, 0];
            for (at, word) in (0..).step_by(4).zip(words) {
                guest.set_word(OWN.data + at, word);
            }
            let exit = executor.run(&mut guest.slot, &mut guest.frame, task, &mut NoDevice);
            (exit, guest.memory())
        };
        let expected = run(&task(OWN, code, None));
        for way in Way::translated(Checks::Page) {
            let translation = way.options.map(|options| translate(code, &[], options));
            let limits = Limits { time: None, instructions: way.counts().then_some(1000) };
            let found = run(&Task { limits, ..task(OWN, code, translation.as_ref()) });
            assert_eq!(found.0, expected.0, "{next:#x}, {}", way.name());
            assert!(found.1 == expected.1, "{next:#x}, {}: memory", way.name());
        }
    }
}
