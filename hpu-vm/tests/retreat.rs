//! Accesses that exact checks refuse, in programs that load, store and count what they did: whichever of them translated code leaves
//! to the interpreter, nothing is done twice and nothing left out.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;
#[path = "qemu/random.rs"]
#[expect(dead_code, reason = "a part of it is for other tests")]
mod random;

use std::collections::BTreeMap;

use assembly::{A2, A3, A4, A5, Assembly, S0, T0, T1};
use guest::{DATA_LEN, Guest, OWN, task, translate};
use hpu_vm::jit::{Atomics, Executor, Options};
use hpu_vm::{Checks, Exit, NoDevice, Op, Reg};
use random::Random;

const PROGRAMS: u64 = if cfg!(debug_assertions) { 500 } else { 5000 };

/// Points to words that are counted up.
const WORDS: Reg = S0;
/// Point to memory, some of them near its end.
const POINTERS: [Reg; 3] = [A2, A3, A4];
/// Hold anything.
const VALUES: [Reg; 3] = [A5, T0, T1];
const TEMPORARY: Reg = Reg::new(28);

/// Words that are counted up, pointers behind them, then bytes for pointers to point to.
const COUNTED: u32 = 16;
const KEPT: u32 = 64;
const LAST: u32 = OWN.data + DATA_LEN - 32;

struct Generator {
    random: Random,
    program: Assembly,
}

impl Generator {
    fn value(&mut self) -> Reg {
        self.random.choose(&VALUES)
    }

    fn pointer(&mut self) -> Reg {
        self.random.choose(&POINTERS)
    }

    fn add(&mut self, next: impl FnOnce(Assembly) -> Assembly) {
        self.program = next(std::mem::take(&mut self.program));
    }

    /// Instructions without branches.
    fn steps(&mut self) {
        for _ in 0..=self.random.below(5) {
            self.step();
        }
    }

    fn step(&mut self) {
        let (value, pointer) = (self.value(), self.pointer());
        // One in a few is behind the end.
        let near = 4 * self.random.below(10).cast_signed();
        let word = 4 * self.random.below(COUNTED).cast_signed();
        let kept = (KEPT + 4 * self.random.below(COUNTED)).cast_signed();
        match self.random.below(12) {
            0..=2 => self.add(|program| program.imm(Op::Lw, value, pointer, near)),
            // What nobody does twice without being seen.
            3 | 4 => self.add(|program| {
                let program = program.imm(Op::Lw, TEMPORARY, WORDS, word).imm(Op::Addi, TEMPORARY, TEMPORARY, 1);
                program.store(Op::Sw, TEMPORARY, WORDS, word)
            }),
            5 => self.add(|program| program.op(Op::AmoaddW, value, pointer, value)),
            6 => self.add(|program| program.store(Op::Sw, value, pointer, near)),
            // Pointers come from memory, or from each other.
            7 => self.add(|program| program.imm(Op::Lw, pointer, WORDS, kept)),
            8 => self.add(|program| program.imm(Op::Addi, pointer, pointer, 4)),
            9 => self.add(|program| program.imm(Op::Addi, value, value, word)),
            10 => self.add(|program| program.store(Op::Sw, value, WORDS, word)),
            _ => self.add(|program| program.op(Op::Add, value, value, TEMPORARY)),
        }
    }

    /// Instructions that one of two ways leads through, or both.
    fn fork(&mut self) {
        let (condition, value) = (self.random.choose(&[Op::Beq, Op::Bne, Op::Bltu]), self.value());
        let [left, right] = [(); 2].map(|()| {
            let outer = std::mem::take(&mut self.program);
            self.steps();
            std::mem::replace(&mut self.program, outer)
        });
        let (left, right) = (left.bytes().to_vec(), right.bytes().to_vec());
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("short");
        let other = self.random.choose(&[Reg::ZERO, TEMPORARY]);
        self.add(|program| {
            let to = program.pc() + 4 + len(&left) + 4;
            let program = program.branch(condition, value, other, to).raw(&left);
            let end = program.pc() + 4 + len(&right);
            program.jal(Reg::ZERO, end).raw(&right)
        });
    }

    /// The program of a seed.
    fn program(seed: u64) -> Assembly {
        let mut generator = Self { random: Random::new(seed), program: Assembly::new().li(WORDS, OWN.data) };
        // Roots that nothing is known of.
        for (pointer, at) in POINTERS.into_iter().zip((KEPT..).step_by(4)) {
            generator.add(|program| program.imm(Op::Lw, pointer, WORDS, at.cast_signed()));
        }
        for _ in 0..2 + generator.random.below(4) {
            generator.steps();
            generator.fork();
        }
        generator.steps();
        generator.program.ret()
    }
}

/// Memory: small numbers, and addresses up to the end.
fn fill(guest: &mut Guest, seed: u64) {
    let mut random = Random::new(!seed);
    for at in (OWN.data..LAST).step_by(4) {
        let pointer = at - OWN.data >= KEPT && !random.one_in(8);
        let value = if pointer { LAST - 4 * random.below(24) } else { random.below(3) };
        guest.set_word(at, value);
    }
}

#[test]
fn what_is_left_to_the_interpreter_is_done_once() {
    let executor = Executor::new().expect("a timer");
    let mut ends = BTreeMap::new();
    for seed in 0..PROGRAMS {
        let code = Generator::program(seed).code();
        let run = |options: Option<Options>| {
            let translation = options.map(|options| translate(&code, &[], options));
            let mut guest = Guest::new(OWN, &code, 0);
            guest.slot.view().set_checks(Checks::Exact);
            fill(&mut guest, seed);
            let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, translation.as_ref()), &mut NoDevice);
            (exit, guest.memory())
        };
        let expected = run(None);
        for atomics in [Atomics::Shared, Atomics::Home] {
            let options = Options { atomics, checks: Checks::Exact, ..Options::default() };
            let (exit, memory) = run(Some(options));
            assert_eq!(exit, expected.0, "seed {seed}, {atomics:?}");
            let at = memory.iter().zip(&expected.1).position(|(one, other)| one != other);
            assert_eq!(at, None, "seed {seed}, {atomics:?}: a byte of memory");
        }
        let name = match expected.0 {
            Exit::Fault(fault) => format!("{:?}", fault.cause),
            other => format!("{other:?}"),
        };
        *ends.entry(name).or_insert(0) += 1;
    }
    println!("{PROGRAMS} programs ended by {ends:?}");
    assert!(ends.values().all(|&count| count > PROGRAMS / 50), "not a mixture: {ends:?}");
}
