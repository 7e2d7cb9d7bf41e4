//! The instructions that atomics become.

use std::collections::BTreeSet;

use hpu_vm::jit::{Atomics, Options, Source, Translation};
use hpu_vm::{Checks, Inst, Op, Reg};

use crate::assembly::{A2, A3, A4, Assembly, Known, T0};
use crate::guest::CODE;
use crate::{L1, L2};

/// Every AMO.
const AMOS: [Op; 9] = [
    Op::AmoswapW,
    Op::AmoaddW,
    Op::AmoxorW,
    Op::AmoandW,
    Op::AmoorW,
    Op::AmominW,
    Op::AmomaxW,
    Op::AmominuW,
    Op::AmomaxuW,
];
/// Acquire and release bits.
const ORDERINGS: [u32; 4] = [0, 1 << 26, 1 << 25, 3 << 25];

fn emitted(program: &Assembly, atomics: Atomics, triple: &str) -> String {
    let (code, taken) = (program.code(), BTreeSet::new());
    let options = Options { atomics, checks: Checks::Page, ..Options::default() };
    let source = Source { code: &code, entries: &[CODE], taken: &taken };
    let text = Translation::disassemble(source, CODE, options, triple).expect("a translation");
    assert!(!text.is_empty());
    text
}

/// One atomic at `address`.
fn one(op: Op, ordering: u32, address: u32, known: Known) -> Assembly {
    let bits = Inst::new(op).rd(A4).rs1(A2).rs2(if op == Op::LrW { Reg::ZERO } else { A3 }).encode() | ordering;
    // Its operand and its result are of use, so that no part of it is left out.
    let program = Assembly::new().imm(Op::Lw, A3, Reg::A0, 0).address(A2, address, known);
    program.raw(&bits.to_le_bytes()).store(Op::Sw, A4, Reg::A0, 0).ret()
}

fn plain() -> Assembly {
    let program = Assembly::new().address(A2, L2, Known::Derived).imm(Op::Lw, A3, A2, 0).imm(Op::Lbu, A4, A2, 4);
    program.store(Op::Sw, A4, A2, 0).store(Op::Sh, A3, A2, 4).ret()
}

/// Whether there is an atomic read-modify-write that orders all other accesses, as Cranelift writes them for A64: an
/// instruction with acquire and release, or its name for a loop of `ldaxr` and `stlxr`.
fn modifies(text: &str) -> bool {
    ["atomic_rmw_loop", "atomic_cas_loop", "casal"].iter().any(|name| text.contains(name))
        || instructions(text).any(|name| {
            ["ldadd", "ldset", "ldclr", "ldeor", "ldsmin", "ldsmax", "ldumin", "ldumax", "swp"]
                .iter()
                .any(|start| name.starts_with(start))
                && name.ends_with("al")
        })
}

/// First words of the lines.
fn instructions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.split_whitespace().next())
}

/// Whether there is any access of A64 that is atomic or ordered.
fn ordered(text: &str) -> bool {
    modifies(text) || instructions(text).any(|name| ["ldar", "stlr", "ldaxr", "stlxr", "dmb"].contains(&name))
}

/// Whether there is a locked access, as Cranelift writes them for x86-64: `xchg` with memory locks by itself (Intel SDM,
/// vol. 3A, 9.1.2.1), and `atomically` is a loop around `lock cmpxchg`.
fn locked(text: &str) -> bool {
    ["lock ", "xchg", "atomically"].iter().any(|name| text.contains(name))
}

#[test]
fn aarch64_orders_atomics_whatever_their_bits_say_and_nothing_else() {
    for ordering in ORDERINGS {
        for atomics in [Atomics::Home, Atomics::Shared] {
            for known in Known::ALL {
                for op in AMOS {
                    let text = emitted(&one(op, ordering, L2, known), atomics, "aarch64");
                    assert!(modifies(&text), "{op:?}, {ordering:#x}, {known:?}:\n{text}");
                }
                let text = emitted(&one(Op::LrW, ordering, L2, known), atomics, "aarch64");
                assert!(instructions(&text).any(|name| name == "ldar"), "{ordering:#x}, {known:?}:\n{text}");
                let text = emitted(&one(Op::ScW, ordering, L2, known), atomics, "aarch64");
                assert!(modifies(&text), "{ordering:#x}, {known:?}:\n{text}");
            }
        }
    }
    let text = emitted(&plain(), Atomics::Shared, "aarch64");
    assert!(!ordered(&text), "{text}");
}

#[test]
fn x86_64_locks_shared_atomics_and_nothing_else() {
    for known in Known::ALL {
        for op in AMOS {
            for address in [L1, L2] {
                let text = emitted(&one(op, 0, address, known), Atomics::Shared, "x86_64");
                assert!(locked(&text), "{op:?}, {known:?}:\n{text}");
            }
        }
    }
    let text = emitted(&plain(), Atomics::Shared, "x86_64");
    assert!(!locked(&text), "{text}");
}

/// A release or an acquire is nothing on a machine that orders stores; the sets are those of an `fm`, `pred`, `succ`.
#[test]
fn fences_order_what_the_host_does_not() {
    let cases =
        [(0x0ff, true), (0x033, true), (0x012, true), (0x084, false), (0x031, false), (0x023, false), (0x833, false)];
    for (sets, costs) in cases {
        let program = Assembly::new().inst(Inst::new(Op::Fence).imm(sets)).ret();
        let fenced = |triple, name| {
            let text = emitted(&program, Atomics::Shared, triple);
            instructions(&text).any(|instruction| instruction == name)
        };
        assert_eq!(fenced("x86_64", "mfence"), costs, "{sets:#x}");
        assert!(fenced("aarch64", "dmb"), "{sets:#x}");
    }
}

/// As a reader does that looks whether what it has read was written meanwhile. No load stands for another, fence or none.
#[test]
fn what_is_read_twice_is_loaded_twice() {
    let fence = Inst::new(Op::Fence).imm(0x22);
    let program = |fences: bool| {
        let once = |program: Assembly, reg, at| {
            let program = program.imm(Op::Lw, reg, A2, at);
            if fences { program.inst(fence) } else { program }
        };
        let program = Assembly::new().imm(Op::Lw, A2, Reg::A0, 0);
        let program = once(once(once(program, A3, 0x40), T0, 0x44), A4, 0x40);
        let program = program.op(Op::Sub, A4, A4, A3).store(Op::Sw, A4, Reg::A0, 4);
        program.store(Op::Sw, T0, Reg::A0, 8).ret()
    };
    for fences in [true, false] {
        for (triple, place) in [("x86_64", "0x40(%"), ("aarch64", "#64]")] {
            let text = emitted(&program(fences), Atomics::Shared, triple);
            assert_eq!(text.matches(place).count(), 2, "{triple}, fences {fences}:\n{text}");
        }
    }
}

/// Where the address is no constant, the locked form stays for L2.
#[test]
fn home_atomics_in_l1_are_plain() {
    for op in AMOS {
        let text = emitted(&one(op, 0, L1, Known::Constant), Atomics::Home, "x86_64");
        assert!(!locked(&text), "{op:?}:\n{text}");
        let text = emitted(&one(op, 0, L1, Known::Constant), Atomics::Home, "aarch64");
        assert!(!ordered(&text), "{op:?}:\n{text}");
        let text = emitted(&one(op, 0, L2, Known::Constant), Atomics::Home, "x86_64");
        assert!(locked(&text), "{op:?}:\n{text}");
    }
}
