//! Commands of handlers that store their words in one way or another: whatever translated code need not store, the device is told what the
//! interpreter tells it, also where that goes on in the middle, and whatever another handler has left behind.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;
#[path = "qemu/random.rs"]
#[expect(dead_code, reason = "a part of it is for other tests")]
mod random;

use assembly::{A2, A3, A4, A5, Assembly, S0, S1, T0, T1, T2};
use guest::{DATA_LEN, Guest, OWN, Way, task, translate};
use hpu_vm::jit::{Executor, Limits, Options, Task};
use hpu_vm::{Checks, Code, Device, Exit, Op, Reg, Trap, View};
use random::Random;
use spin_abi::command::{Command, Source, Status};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{DRIVER_BASE, RETURN_ADDRESS};
use spin_abi::regs::{COMMAND_INFO, COMMAND_ISSUE, COMMAND_WAIT, COMMAND_WORDS, INFO_DMA, INFO_SEND};
use std::hint;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Pairs of them.
const PROGRAMS: u64 = if cfg!(debug_assertions) { 300 } else { 1000 };
/// The driver page.
const DRIVER: Reg = T2;
/// Hold words of the data.
const VALUES: [Reg; 4] = [A2, A3, A4, A5];
/// Points near the end of the data.
const POINTER: Reg = T1;
/// Points to a word of the command or of the data: only known when it runs.
const EITHER: Reg = Reg::new(28);

type Issued = Vec<Result<Command, Status>>;

/// Keeps the commands that are issued; whoever waits first has to do so once more.
#[derive(Default)]
struct Recorder {
    issued: Issued,
    waited: bool,
}

impl Device for Recorder {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn issue(&mut self, _: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        self.issued.push(command);
        // The eighth one ends the handler.
        u32::try_from(self.issued.len()).ok().filter(|count| count % 8 != 0).ok_or(Cause::DeviceAccess)
    }

    fn wait(&mut self, _: &mut View<'_>, _: u32) -> Poll<Result<(), Trap>> {
        if std::mem::replace(&mut self.waited, true) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// Stores some words of a command, most often all; then issues it, most often.
fn command(random: &mut Random, mut program: Assembly) -> Assembly {
    let (some, plain) = (random.one_in(3), random.one_in(2));
    let words = 5 + random.below(2);
    for word in 0..words {
        if some && random.one_in(3) {
            continue;
        }
        // A raw send has zeroes there.
        let zero = matches!(word, 0 | 1 | 3) && plain && !random.one_in(12);
        // Which way a copy goes is known, most often.
        let direction = word == 4 && random.one_in(2);
        program = if direction { program.li(T0, random.below(4)) } else { program };
        let value = match direction {
            true => T0,
            false if zero => Reg::ZERO,
            false => random.choose(&VALUES),
        };
        program = program.store(Op::Sw, value, DRIVER, (COMMAND_WORDS + 4 * word).cast_signed());
        if random.one_in(12) {
            program = between(random, program);
        }
    }
    if !some || !random.one_in(4) {
        let info = random.choose(&[INFO_SEND, INFO_SEND, INFO_DMA, INFO_DMA, INFO_DMA | 1, 4, 6]);
        let known = !random.one_in(6);
        let reg = if known { T0 } else { random.choose(&VALUES) };
        program = if known { program.li(T0, info) } else { program };
        program = program.store(Op::Sw, reg, DRIVER, COMMAND_INFO.cast_signed());
    }
    if random.one_in(5) {
        program = between(random, program);
    }
    if random.one_in(8) {
        program
    } else {
        program.imm(Op::Lw, random.choose(&VALUES), DRIVER, COMMAND_ISSUE.cast_signed())
    }
}

/// Something else: what exact checks may refuse, what they do not look at, a wait, and a word of a command that is read, or may be.
fn between(random: &mut Random, program: Assembly) -> Assembly {
    let value = random.choose(&VALUES);
    match random.below(8) {
        0 | 1 => program.imm(Op::Lw, value, POINTER, 4 * random.below(12).cast_signed()),
        2 => program.store(Op::Sw, value, POINTER, 4 * random.below(12).cast_signed()),
        3 => program.imm(Op::Lw, value, DRIVER, (COMMAND_WORDS + 4 * random.below(5)).cast_signed()),
        4 => program.imm(Op::Addi, value, value, 1),
        5 => program.imm(Op::Lw, value, EITHER, 0),
        6 if random.one_in(2) => program.store(Op::Sw, value, EITHER, 0),
        6 => program.store(Op::Sw, value, DRIVER, COMMAND_WAIT.cast_signed()),
        _ => program.op(Op::Add, value, value, random.choose(&VALUES)),
    }
}

/// The beginning of a program, and what ends it from wherever it is jumped to: a return, at once, by way of another, or when something is
/// computed, and one that looks at a word of the last command.
fn ends() -> (Assembly, [u32; 4]) {
    // Over seven instructions.
    let begin = Assembly::new().jal(Reg::ZERO, Assembly::new().pc() + 32);
    let at_once = begin.pc();
    let begin = begin.ret();
    let by_way = begin.pc();
    let begin = begin.jal(Reg::ZERO, at_once);
    let computed = begin.pc();
    let begin = begin.imm(Op::Addi, A2, A2, 1).ret();
    let looked_at = begin.pc();
    let begin = begin.imm(Op::Lw, A3, DRIVER, COMMAND_WORDS.cast_signed() + 8).store(Op::Sw, A3, S0, 36).ret();
    (begin, [at_once, by_way, computed, looked_at])
}

/// Commands in a few blocks, of which each may be the last, or lead back.
fn program(seed: u64) -> Code {
    let random = &mut Random::new(seed);
    let (mut program, ends) = ends();
    // One for all of them: what is jumped to from one place alone is as good as part of that.
    let end = random.choose(&ends);
    program = program.li(S0, OWN.data).li(DRIVER, DRIVER_BASE).imm(Op::Lw, POINTER, S0, 32);
    for (value, at) in VALUES.into_iter().zip((0..).step_by(4)) {
        program = program.imm(Op::Lw, value, S0, at);
    }
    program = program.li(EITHER, DRIVER_BASE + COMMAND_WORDS + 4 * random.below(5));
    let over = program.pc() + 8;
    program = program.branch(Op::Beq, random.choose(&VALUES), Reg::ZERO, over).imm(Op::Addi, EITHER, S0, 28);
    if random.one_in(8) {
        // What nobody has stored is zero.
        return program.imm(Op::Lw, A2, DRIVER, COMMAND_ISSUE.cast_signed()).ret().code();
    }
    program = program.li(S1, 1 + random.below(3));
    let mut again = program.pc();
    for _ in 0..=random.below(3) {
        if random.one_in(3) {
            again = program.pc();
        }
        if random.one_in(2) {
            program = between(random, program);
        }
        for _ in 0..=random.below(2) {
            program = command(random, program);
        }
        if random.one_in(2) {
            // Over the return.
            let to = program.pc() + 8;
            program = program.branch(Op::Beq, random.choose(&VALUES), random.choose(&VALUES), to);
            program = if random.one_in(4) { program.ret() } else { program.jal(Reg::ZERO, end) };
        }
        if random.one_in(3) {
            // Once more from there on, up to three times in all.
            let over = program.pc() + 12;
            program = program.imm(Op::Addi, S1, S1, -1).branch(Op::Bge, Reg::ZERO, S1, over).jal(Reg::ZERO, again);
        }
    }
    let program = if random.one_in(4) { program.ret() } else { program.jal(Reg::ZERO, end) };
    program.code()
}

/// What comes of two handlers on one HPU, one after the other, twice.
fn run(executor: &Executor, way: Way, codes: [&Code; 2], seed: u64) -> Vec<(Exit, Issued, Vec<u8>)> {
    let mut guest = Guest::new(OWN, codes[0], 0);
    guest.slot.view().set_checks(way.checks);
    let mut random = Random::new(!seed);
    for at in (0..32).step_by(4) {
        guest.set_word(OWN.data + at, random.below(3));
    }
    guest.set_word(OWN.data + 32, OWN.data + DATA_LEN - 4 * random.below(16));
    let translations = codes.map(|code| way.options.map(|options| translate(code, &[], options)));
    let limits = Limits { time: None, instructions: way.counts().then_some(1000) };
    let mut all = Vec::new();
    for index in [0, 1, 1, 0] {
        let mut device = Recorder::default();
        let task = Task { limits, ..task(OWN, codes[index], translations[index].as_ref()) };
        let mut exit = executor.run(&mut guest.slot, &mut guest.frame, &task, &mut device);
        if exit == Exit::Parked {
            exit = executor.resume(&mut guest.slot, &mut guest.frame, &task, &mut device);
        }
        all.push((exit, device.issued, guest.memory()));
    }
    all
}

#[test]
fn devices_are_told_what_the_interpreter_tells_them() {
    let executor = Executor::new().expect("a timer");
    let (mut commands, mut malformed, mut faults) = (0, 0, 0);
    for seed in (0..PROGRAMS).map(|pair| 2 * pair) {
        let codes = [program(seed), program(seed + 1)];
        let codes = [&codes[0], &codes[1]];
        for checks in [Checks::Page, Checks::Exact] {
            let expected = run(&executor, Way::interpreter(checks), codes, seed);
            for way in Way::translated(checks) {
                let found = run(&executor, way, codes, seed);
                for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let name = format!("seed {seed}, handler {number}, {}", way.name());
                    assert_eq!((found.0, &found.1), (expected.0, &expected.1), "{name}");
                    assert!(found.2 == expected.2, "{name}: memory");
                }
            }
            for (exit, issued, _) in expected {
                commands += issued.len();
                malformed += issued.iter().filter(|command| command.is_err()).count();
                faults += usize::from(matches!(exit, Exit::Fault(_)));
            }
        }
    }
    println!("{commands} commands, {malformed} of them malformed, {faults} faults");
    let least = usize::try_from(PROGRAMS).expect("few") / 4;
    assert!([commands - malformed, malformed, faults].into_iter().all(|count| count > least), "not a mixture");
}

/// A send, of which a register has all words.
fn send(mut program: Assembly, words: Reg) -> Assembly {
    for word in 0..5 {
        program = program.store(Op::Sw, words, DRIVER, (COMMAND_WORDS + 4 * word).cast_signed());
    }
    let program = program.li(T0, INFO_SEND).store(Op::Sw, T0, DRIVER, COMMAND_INFO.cast_signed());
    program.imm(Op::Lw, A4, DRIVER, COMMAND_ISSUE.cast_signed())
}

/// Nobody can tell before it runs that a word is one of a command: it is none of the task before.
#[test]
fn a_word_that_is_loaded_by_some_pointer_is_the_task_s_own() {
    let executor = Executor::new().expect("a timer");
    let program = Assembly::new().li(S0, OWN.data).li(DRIVER, DRIVER_BASE);
    let leaves = program.clone().li(A3, 7).store(Op::Sw, A3, DRIVER, COMMAND_WORDS.cast_signed());
    let leaves = leaves.imm(Op::Lw, A3, S0, 0).ret().code();
    let program = program.li(EITHER, DRIVER_BASE + COMMAND_WORDS).imm(Op::Lw, A4, S0, 0);
    let over = program.pc() + 8;
    let program = program.branch(Op::Beq, A4, Reg::ZERO, over).imm(Op::Addi, EITHER, S0, 0);
    let looks = send(program.imm(Op::Lw, A3, EITHER, 0).store(Op::Sw, A3, S0, 36), A3).ret().code();
    let codes = [&leaves, &looks];
    let translations = codes.map(|code| translate(code, &[], Options::default()));
    let mut guest = Guest::new(OWN, &looks, 0);
    guest.set_word(OWN.data + 36, 1);
    for (code, translation) in codes.into_iter().zip(&translations) {
        let task = task(OWN, code, Some(translation));
        let exit = executor.run(&mut guest.slot, &mut guest.frame, &task, &mut Recorder::default());
        assert_eq!(exit, Exit::Returned);
    }
    assert_eq!(guest.word(OWN.data + 36), 0);
}

/// What the interpreter and each way of translating make of a handler whose first word of data is `word`: how it ended, what it issued, and the
/// word that it left.
fn agree(program: &Code, word: u32) -> (Exit, Issued, u32) {
    let executor = Executor::new().expect("a timer");
    let outcome = |way: Way| {
        let mut guest = Guest::new(OWN, program, 0);
        guest.set_word(OWN.data, word);
        let mut device = Recorder::default();
        let exit = way.run(&executor, &mut guest, OWN, (program, &[]), 1000, &mut device);
        (exit, device.issued, guest.word(OWN.data + 36))
    };
    let expected = outcome(Way::interpreter(Checks::Exact));
    for way in Way::translated(Checks::Exact) {
        assert_eq!(outcome(way), expected, "{}", way.name());
    }
    expected
}

/// Refuses all, or takes its time for each.
struct Last {
    time: Option<Duration>,
}

impl Device for Last {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn issue(&mut self, _: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        let expected = Command::Send { destination: 0, fid: 0, source: Source::Nic(0x1234_5678), length: u32::MAX - 1 };
        assert_eq!(command, Ok(expected));
        let time = self.time.ok_or(Cause::DeviceAccess)?;
        let begun = Instant::now();
        while begun.elapsed() < time {
            hint::spin_loop();
        }
        Ok(0)
    }
}

/// The words of a raw send of what `A2` and `A3` say.
fn plain(program: Assembly) -> Assembly {
    let offsets = (COMMAND_WORDS.cast_signed()..).step_by(4);
    let words = [Reg::ZERO, Reg::ZERO, A2, Reg::ZERO, A3].into_iter().zip(offsets);
    let program = words.fold(program, |program, (reg, at)| program.store(Op::Sw, reg, DRIVER, at));
    program.li(T0, INFO_SEND).store(Op::Sw, T0, DRIVER, COMMAND_INFO.cast_signed())
}

/// Behind it the return address may prove to be another one than that of the handler's end.
#[test]
fn a_send_that_most_likely_comes_last_is_issued_whatever_comes() {
    let whole = |elsewhere: u32| {
        let program = Assembly::new().li(S0, OWN.data).li(DRIVER, DRIVER_BASE).li(A2, 1).li(A3, 2);
        let program = program.imm(Op::Addi, Reg::SP, Reg::SP, -16).store(Op::Sw, Reg::RA, Reg::SP, 12);
        let over = program.imm(Op::Lw, A5, S0, 0);
        let past = over.pc() + 8;
        let program = over.branch(Op::Beq, A5, Reg::ZERO, past).store(Op::Sw, A5, Reg::SP, 12);
        let program = plain(program).imm(Op::Lw, Reg::RA, Reg::SP, 12);
        let program = program.imm(Op::Lw, Reg::ZERO, DRIVER, COMMAND_ISSUE.cast_signed());
        let program = program.imm(Op::Addi, Reg::SP, Reg::SP, 16).ret();
        let there = program.pc();
        (program.li(A4, elsewhere).store(Op::Sw, A4, S0, 36).li(Reg::RA, RETURN_ADDRESS).ret(), there)
    };
    let (program, elsewhere) = whole(7);
    for (word, left) in [(0, 0), (elsewhere, 7)] {
        let (exit, issued, found) = agree(&program.clone().code(), word);
        assert_eq!((exit, issued.len(), found), (Exit::Returned, 1, left));
    }
}

/// Translated code leaves it to its caller, which says where it was issued.
#[test]
fn a_send_that_comes_last_fails_where_it_is() {
    let executor = Executor::new().expect("a timer");
    let program = plain(Assembly::new().li(DRIVER, DRIVER_BASE).li(A2, 0x1234_5678).li(A3, u32::MAX - 1));
    let pc = program.pc();
    let code = program.imm(Op::Lw, Reg::ZERO, DRIVER, COMMAND_ISSUE.cast_signed()).ret().code();
    let (refused, late) =
        (Fault { cause: Cause::DeviceAccess, pc, address: DRIVER_BASE + COMMAND_ISSUE }, Duration::from_millis(200));
    let late_fault = Fault { cause: Cause::Watchdog, pc, address: 0 };
    for way in [Way::interpreter(Checks::Page)].into_iter().chain(Way::translated(Checks::Page)) {
        let run = |time: Option<Duration>| {
            let mut guest = Guest::new(OWN, &code, 0);
            let translation = way.options.map(|options| translate(&code, &[], options));
            let instructions = way.counts().then_some(1000);
            let limits = Limits { time: Some(5000), instructions };
            let task = Task { limits, ..task(OWN, &code, translation.as_ref()) };
            executor.run(&mut guest.slot, &mut guest.frame, &task, &mut Last { time })
        };
        assert_eq!(run(None), Exit::Fault(refused), "{}", way.name());
        assert_eq!(run(Some(Duration::ZERO)), Exit::Returned, "{}", way.name());
        // The interpreter looks at the clock now and then.
        if way.options.is_some() {
            assert_eq!(run(Some(late)), Exit::Fault(late_fault), "{}", way.name());
        }
    }
}

/// Exact checks leave a load to the interpreter that may be a device's: it finds the words of the command before.
#[test]
fn a_command_is_there_for_who_loads_it_by_a_pointer_from_memory() {
    let begin = Assembly::new().li(S0, OWN.data).li(DRIVER, DRIVER_BASE).li(A2, 0x3333).imm(Op::Lw, EITHER, S0, 0);
    let program = send(begin, A2).imm(Op::Lw, A4, EITHER, 0).store(Op::Sw, A4, S0, 36).ret().code();
    let (exit, issued, word) = agree(&program, DRIVER_BASE + COMMAND_WORDS + 8);
    assert_eq!((exit, issued.len(), word), (Exit::Returned, 1, 0x3333));
    let (exit, issued, _) = agree(&program, DRIVER_BASE + COMMAND_ISSUE);
    assert!(exit == Exit::Returned && issued.len() == 2 && issued[0] == issued[1], "{issued:?}");
}

/// Page checks find no device behind a pointer from memory. The interpreter does, where an instruction is left to it.
#[test]
fn a_command_is_there_for_the_interpreter_behind_an_instruction_that_is_not_translated() {
    const ROUNDING: i32 = 0x00a;
    let executor = Executor::new().expect("a timer");
    let begin = Assembly::new().li(S0, OWN.data).li(DRIVER, DRIVER_BASE).li(A2, 0x3333).imm(Op::Lw, EITHER, S0, 0);
    let program = send(begin, A2).imm(Op::Csrrw, Reg::ZERO, Reg::ZERO, ROUNDING).imm(Op::Lw, A4, EITHER, 0);
    let code = program.store(Op::Sw, A4, S0, 36).ret().code();
    for way in [Way::interpreter(Checks::Page)].into_iter().chain(Way::translated(Checks::Page)) {
        let mut guest = Guest::new(OWN, &code, 0);
        guest.set_word(OWN.data, DRIVER_BASE + COMMAND_WORDS + 8);
        let exit = way.run(&executor, &mut guest, OWN, (&code, &[]), 1000, &mut Recorder::default());
        assert_eq!((exit, guest.word(OWN.data + 36)), (Exit::Returned, 0x3333), "{}", way.name());
    }
}

/// So does it where a function returns elsewhere than it was called from.
#[test]
fn a_command_is_there_behind_a_return_to_elsewhere() {
    let enter = |program: Assembly| program.imm(Op::Addi, Reg::SP, Reg::SP, -16).store(Op::Sw, Reg::RA, Reg::SP, 12);
    let leave = |program: Assembly| program.imm(Op::Lw, Reg::RA, Reg::SP, 12).imm(Op::Addi, Reg::SP, Reg::SP, 16).ret();
    let whole = |function: u32| {
        let begin = Assembly::new().li(S0, OWN.data).li(DRIVER, DRIVER_BASE).li(A2, 0x3333);
        let program = leave(enter(begin).jal(Reg::RA, function));
        let function = program.pc();
        let program = enter(program).imm(Op::Lw, A5, S0, 0).store(Op::Sw, A5, Reg::SP, 12);
        let program = leave(send(program, A2));
        let elsewhere = program.pc();
        let program = program.imm(Op::Lw, A4, DRIVER, COMMAND_WORDS.cast_signed() + 8);
        (leave(program.store(Op::Sw, A4, S0, 36)), function, elsewhere)
    };
    let (_, function, _) = whole(Assembly::new().pc());
    let (program, _, elsewhere) = whole(function);
    let (exit, issued, word) = agree(&program.code(), elsewhere);
    assert_eq!((exit, issued.len(), word), (Exit::Returned, 1, 0x3333));
}

/// Nor that the interpreter, which goes on where a handler waits, is to find it.
#[test]
fn a_word_that_was_stored_by_some_pointer_is_there_behind_a_wait() {
    let executor = Executor::new().expect("a timer");
    let program = Assembly::new().li(S0, OWN.data).li(DRIVER, DRIVER_BASE);
    let program = program.li(T1, DRIVER_BASE + COMMAND_WORDS).li(EITHER, DRIVER_BASE + COMMAND_WAIT);
    let program = program.imm(Op::Lw, A4, S0, 0).li(A2, 0x1234);
    let over = program.pc() + 12;
    let program =
        program.branch(Op::Beq, A4, Reg::ZERO, over).imm(Op::Addi, T1, S0, 0x100).imm(Op::Addi, EITHER, S0, 0x104);
    let program = program.store(Op::Sw, A2, T1, 0).store(Op::Sw, A2, EITHER, 0).imm(Op::Lw, A3, T1, 0);
    let code = send(program.store(Op::Sw, A3, S0, 36), A3).ret().code();
    let translation = translate(&code, &[], Options::default());
    for translation in [None, Some(&translation)] {
        let mut guest = Guest::new(OWN, &code, 0);
        let (task, mut device) = (task(OWN, &code, translation), Recorder::default());
        assert_eq!(executor.run(&mut guest.slot, &mut guest.frame, &task, &mut device), Exit::Parked);
        assert_eq!(executor.resume(&mut guest.slot, &mut guest.frame, &task, &mut device), Exit::Returned);
        assert_eq!(guest.word(OWN.data + 36), 0x1234, "translated: {}", translation.is_some());
    }
}

/// Behind a command others come that look at its words, also from elsewhere.
#[test]
fn words_that_are_looked_at_behind_a_command_are_there() {
    let executor = Executor::new().expect("a timer");
    let (begin, ends) = ends();
    for end in ends {
        let program =
            begin.clone().li(S0, OWN.data).li(DRIVER, DRIVER_BASE).imm(Op::Lw, A2, S0, 0).imm(Op::Lw, A3, S0, 4);
        let over = program.pc() + 8;
        let program = program.branch(Op::Beq, A2, Reg::ZERO, over).jal(Reg::ZERO, end);
        let code = send(program, A3).jal(Reg::ZERO, end).code();
        for way in Way::translated(Checks::Page) {
            let mut guest = Guest::new(OWN, &code, 0);
            guest.set_word(OWN.data + 4, 7);
            let translation = way.options.map(|options| translate(&code, &[], options));
            let limits = Limits { time: None, instructions: way.counts().then_some(1000) };
            let task = Task { limits, ..task(OWN, &code, translation.as_ref()) };
            let mut device = Recorder::default();
            let exit = executor.run(&mut guest.slot, &mut guest.frame, &task, &mut device);
            let expected = if end == ends[3] { 7 } else { 0 };
            assert_eq!(
                (exit, device.issued.len(), guest.word(OWN.data + 36)),
                (Exit::Returned, 1, expected),
                "{way:?}"
            );
        }
    }
}
