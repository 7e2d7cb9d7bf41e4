//! Copies of the packet to host memory that translated code makes without asking the device: host memory, what the device hears of them,
//! and the handles of commands behind them are as in the interpreter, which asks it for each.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;
#[path = "qemu/random.rs"]
#[expect(dead_code, reason = "a part of it is for other tests")]
mod random;

use assembly::{A2, A3, A4, A5, Assembly, S0, S1, T0, T1, T2};
use guest::{Guest, OWN, PACKET, Way, task, translate};
use hpu_vm::jit::{Executor, Limits, Options, Task};
use hpu_vm::{Checks, Code, Device, Exit, HostBytes, Op, Reg, Trap, View};
use random::Random;
use spin_abi::command::{Command, Direction, Status};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, HANDLER_ARGS, L1_ALIAS, TASK_BLOCK};
use spin_abi::regs::{COMMAND_INFO, COMMAND_ISSUE, COMMAND_WORDS, INFO_DMA, INFO_SEND};
use std::sync::atomic::Ordering::Relaxed;

const PROGRAMS: u64 = if cfg!(debug_assertions) { 600 } else { 1000 };
/// Where commands find host memory; its upper half is 0 with one bit more.
const HOST: u64 = 0x7000_ffff_f000;
/// Bytes of the packets of one handler after another.
const LENGTHS: [u32; 4] = [PACKET, 70, PACKET, 300];
/// Longer than a window, and no multiple of anything.
const HOST_LEN: u32 = 5003;
const DRIVER: Reg = T2;
/// Where handles are kept in the data.
const HANDLES: i32 = 0x200;

/// What a device saw: copies that were made, and commands that it refused.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    done: u64,
    bytes: u64,
    refused: u64,
    /// How many copies it had seen when it refused those.
    before: Vec<u64>,
    /// Of which the device was told alone.
    told: u64,
}

/// Carries out copies to host memory.
struct Unit<'h> {
    host: HostBytes<'h>,
    seen: Seen,
}

impl Device for Unit<'_> {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }

    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        let copied = match command {
            Ok(Command::Dma { host, nic, length, direction: Direction::ToHost, event: false }) => {
                self.host.part(host, length).and_then(|to| {
                    let mut bytes = vec![0; to.len()];
                    view.copy_out(nic, &mut bytes)?;
                    to.iter().zip(bytes).for_each(|(to, byte)| to.store(byte, Relaxed));
                    Some(length)
                })
            }
            _ => None,
        };
        match copied {
            Some(length) => {
                (self.seen.done, self.seen.bytes) = (self.seen.done + 1, self.seen.bytes + u64::from(length))
            }
            None => {
                self.seen.refused += 1;
                self.seen.before.push(self.seen.done);
            }
        }
        Ok(u32::try_from(self.seen.done + self.seen.refused).expect("few"))
    }

    fn copied(&mut self, copies: u64, bytes: u64) {
        self.seen.done += copies;
        self.seen.bytes += bytes;
        self.seen.told += copies;
    }
}

/// The packet in L1.
fn packet() -> u32 {
    OWN.ranges()[1].1
}

/// Near the ends of whatever has `len` bytes from `base` on, or inside.
fn place(random: &mut Random, base: u32, len: u32) -> u32 {
    let within = random.below(len);
    let near = random.below(80);
    let aligned = within & !7;
    base.wrapping_add(random.choose(&[within, aligned, aligned, near, len - near, 0u32.wrapping_sub(near), len + near]))
}

/// Sets a register to a value that the translator knows, or to one from the data, of which it knows nothing.
fn value(random: &mut Random, known: bool, program: Assembly, data: &mut Vec<u32>, reg: Reg, value: u32) -> Assembly {
    if known || random.one_in(2) { program.li(reg, value) } else { loaded(program, data, reg, value) }
}

fn loaded(program: Assembly, data: &mut Vec<u32>, reg: Reg, value: u32) -> Assembly {
    data.push(value);
    let at = i32::try_from(4 * (data.len() - 1)).expect("few words");
    program.imm(Op::Lw, reg, S0, at)
}

fn half(address: u64, shift: u32) -> u32 {
    u32::try_from(address >> shift & u64::from(u32::MAX)).expect("32 bits")
}

/// Has a copy go to an address that is computed as compilers do, or not quite.
fn sum(random: &mut Random, program: Assembly, data: &mut Vec<u32>, to: u64) -> Assembly {
    let more = [random.below(64) * 8, random.below(0x1100), random.value()];
    let more = random.choose(&more);
    let of = to.wrapping_sub(more.into());
    let program = loaded(program, data, A3, half(of, 0));
    let program = value(random, false, program, data, A4, more);
    let program = loaded(program, data, T1, half(of, 32));
    let (low, carry) = if random.one_in(2) { (A4, A3) } else { (A3, A4) };
    let program = program.op(Op::Add, low, A3, A4);
    // Whether there is a carry, whether there is none, and what is one of numbers that may be negative.
    let (op, less, than) = match random.below(4) {
        0 => (Op::Sltu, carry, low),
        1 => (Op::Slt, low, carry),
        _ => (Op::Sltu, low, carry),
    };
    let program = program.op(op, carry, less, than);
    let (one, other) = if random.one_in(2) { (T1, carry) } else { (carry, T1) };
    let program = program.op(if random.one_in(8) { Op::Sub } else { Op::Add }, T1, one, other);
    let at = COMMAND_WORDS.cast_signed();
    program.store(Op::Sw, low, DRIVER, at).store(Op::Sw, T1, DRIVER, at + 4)
}

/// Issues a copy, and sometimes keeps its handle.
fn copy(random: &mut Random, mut program: Assembly, data: &mut Vec<u32>, handles: &mut i32) -> Assembly {
    // What translated code makes itself, where it lies within.
    let plain = random.one_in(2);
    let lengths = [random.below(80), random.below(80), 42, 64, random.below(PACKET + 2)];
    let length = random.choose(&lengths);
    let nic = match random.below(9) {
        0 => L1_ALIAS + random.below(1 << 16),
        1 => OWN.data + random.below(64),
        2 => random.value(),
        // In no window, until one is looked at.
        3 | 4 => place(random, OWN.l2_packet(), PACKET),
        _ if random.one_in(2) => {
            let len = random.choose(&LENGTHS);
            packet() + (len - length.min(len)) + random.below(3) - 1
        }
        _ => place(random, packet(), PACKET),
    };
    // At the very end, or as near to it as is aligned, most often.
    let last = HOST_LEN.saturating_sub(length);
    let at = match random.below(4) {
        0 => last + random.below(2),
        1 => last & !7,
        2 => (last & !7) + 8,
        _ => place(random, 0, HOST_LEN),
    };
    let to = HOST.wrapping_add_signed(at.cast_signed().into());
    let to = if random.one_in(16) { to ^ 1 << (32 + random.below(32)) } else { to };
    let words = [half(to, 0), half(to, 32), nic, length, u32::from(plain || !random.one_in(12))];
    let summed = random.one_in(2);
    if summed {
        program = sum(random, program, data, to);
    }
    let offsets = (COMMAND_WORDS.cast_signed()..).step_by(4);
    for (word, offset) in words.into_iter().zip(offsets).skip(if summed { 2 } else { 0 }) {
        program = value(random, plain, program, data, A3, word).store(Op::Sw, A3, DRIVER, offset);
    }
    program = program.li(T0, INFO_DMA).store(Op::Sw, T0, DRIVER, COMMAND_INFO.cast_signed());
    let wanted = !plain && random.one_in(5);
    let reg = if wanted || random.one_in(2) { A2 } else { Reg::ZERO };
    program = program.imm(Op::Lw, reg, DRIVER, COMMAND_ISSUE.cast_signed());
    if wanted {
        *handles += 4;
        program = program.store(Op::Sw, A2, S0, HANDLES + *handles);
    }
    program.li(A2, 0)
}

/// Copies in a few blocks, some of them more than once, between which the packet changes; and the data that they begin with.
fn program(seed: u64) -> (Code, Vec<u32>) {
    let random = &mut Random::new(seed);
    let (mut data, mut handles) = (Vec::new(), 0);
    let mut program =
        Assembly::new().li(S0, OWN.data).li(DRIVER, DRIVER_BASE).li(S1, 1 + random.below(3)).li(A5, packet());
    let mut again = program.pc();
    for _ in 0..=random.below(3) {
        program = copy(random, program, &mut data, &mut handles);
        if random.one_in(2) {
            program = program.imm(Op::Lw, A4, A5, 8).imm(Op::Addi, A4, A4, 3).store(Op::Sw, A4, A5, 8);
        }
        if random.one_in(8) {
            let op = random.choose(&[Op::Lw, Op::Lb]);
            program = program.li(A3, OWN.l2_packet()).imm(op, A4, A3, 16).store(Op::Sw, A4, A3, 20);
        }
        if random.one_in(3) {
            let over = program.pc() + 12;
            program = program.imm(Op::Addi, S1, S1, -1).branch(Op::Bge, Reg::ZERO, S1, over).jal(Reg::ZERO, again);
        }
        if random.one_in(3) {
            again = program.pc();
        }
    }
    // Some fault at the end.
    let program = if random.one_in(6) { program.imm(Op::Lw, A2, Reg::ZERO, 4) } else { program };
    // A send that is the last thing it does.
    let program = if random.one_in(2) { send(program) } else { program };
    (program.ret().code(), data)
}

/// A raw send of the packet, which the device refuses.
fn send(program: Assembly) -> Assembly {
    let program = program.li(A3, packet()).li(A4, 64).li(T0, INFO_SEND);
    let offsets = (COMMAND_WORDS.cast_signed()..).step_by(4);
    let words = [Reg::ZERO, Reg::ZERO, A3, Reg::ZERO, A4].into_iter().zip(offsets);
    let program = words.fold(program, |program, (reg, at)| program.store(Op::Sw, reg, DRIVER, at));
    let program = program.store(Op::Sw, T0, DRIVER, COMMAND_INFO.cast_signed());
    program.imm(Op::Lw, Reg::ZERO, DRIVER, COMMAND_ISSUE.cast_signed())
}

/// What comes of a handler that runs a few times.
fn run(executor: &Executor, way: Way, code: &Code, data: &[u32]) -> (Vec<Exit>, Seen, Vec<u8>, Vec<u8>) {
    let mut guest = Guest::new(OWN, code, 0);
    guest.slot.view().set_checks(way.checks);
    data.iter().zip((OWN.data..).step_by(4)).for_each(|(word, at)| guest.set_word(at, *word));
    for at in (0..PACKET).step_by(4) {
        guest.set_word(packet() + at, at.wrapping_mul(0x9e37_79b1) | 1);
    }
    guest
        .frame
        .iter_mut()
        .zip(0_u32..)
        .for_each(|(byte, at)| *byte = at.wrapping_mul(0x9e37_79b1).to_le_bytes()[3] | 1);
    let translation = way.options.map(|options| translate(code, &[], options));
    // Nothing is written behind it.
    let mut memory = vec![0; HOST_LEN as usize + 64];
    let host = HostBytes::exclusive(HOST, &mut memory[..HOST_LEN as usize]);
    let mut unit = Unit { host, seen: Seen { done: 0, bytes: 0, refused: 0, before: Vec::new(), told: 0 } };
    let limits = Limits { time: None, instructions: way.counts().then_some(10_000) };
    let task = Task { limits, host: Some(host), ..task(OWN, code, translation.as_ref()) };
    // Of packets of other lengths, then without that memory, then with it again.
    let turns = [Some(host), Some(host), None, Some(host)].into_iter().zip(LENGTHS);
    let exits: Vec<_> = turns
        .map(|(host, len)| {
            guest.slot.set_packet_len(len).expect("it is no longer");
            let frame = &mut guest.frame[..len as usize];
            executor.run(&mut guest.slot, frame, &Task { host, ..task }, &mut unit)
        })
        .collect();
    (exits, unit.seen, memory, guest.memory())
}

#[test]
fn what_is_copied_is_what_the_device_would_have_copied() {
    let executor = Executor::new().expect("a timer");
    let (mut asked, mut told, mut refused, mut faults) = (0, 0, 0, 0);
    for seed in 0..PROGRAMS {
        let (code, data) = program(seed);
        for checks in [Checks::Page, Checks::Exact] {
            let expected = run(&executor, Way::interpreter(checks), &code, &data);
            assert_eq!(expected.1.told, 0, "the interpreter asks for each");
            for way in Way::translated(checks) {
                let found = run(&executor, way, &code, &data);
                let name = format!("seed {seed}, {}", way.name());
                assert_eq!(found.0, expected.0, "{name}");
                let (made, of_these) = (found.1.done, found.1.told);
                assert_eq!(Seen { told: 0, ..found.1 }, expected.1, "{name}");
                assert!(found.2 == expected.2, "{name}: host memory");
                assert!(found.3 == expected.3, "{name}: guest memory");
                assert!(!way.counts() || of_these == 0, "{name}: what is counted is asked for");
                (asked, told) = (asked + made - of_these, told + of_these);
            }
            refused += expected.1.refused;
            faults += u64::from(expected.0.iter().any(|exit| matches!(exit, Exit::Fault(_))));
        }
    }
    println!("{asked} copies were asked for, {told} were not, {refused} refused, {faults} programs with faults");
    assert!([asked, told, refused, faults].into_iter().all(|count| count > PROGRAMS / 8), "not a mixture");
}

/// A copy of nothing, and a send whose handle is kept.
fn of_nothing() -> Code {
    let issue = |program: Assembly, words: [u32; 5], info: u32, handle: Reg| {
        let offsets = (COMMAND_WORDS.cast_signed()..).step_by(4);
        let stored = words.into_iter().zip(offsets);
        let program = stored.fold(program, |program, (word, at)| program.li(A3, word).store(Op::Sw, A3, DRIVER, at));
        let program = program.li(T0, info).store(Op::Sw, T0, DRIVER, COMMAND_INFO.cast_signed());
        program.imm(Op::Lw, handle, DRIVER, COMMAND_ISSUE.cast_signed())
    };
    let program = Assembly::new().li(S0, OWN.data).li(DRIVER, DRIVER_BASE);
    let copied = [half(HOST, 0), half(HOST, 32), OWN.l2_packet(), 0, 1];
    let program = issue(program, copied, INFO_DMA, Reg::ZERO);
    issue(program, [0, 0, packet(), 0, 64], INFO_SEND, A2).store(Op::Sw, A2, S0, HANDLES).ret().code()
}

#[test]
fn a_copy_of_nothing_counts() {
    let (executor, code) = (Executor::new().expect("a timer"), of_nothing());
    for checks in [Checks::Page, Checks::Exact] {
        let expected = run(&executor, Way::interpreter(checks), &code, &[]);
        for way in Way::translated(checks) {
            let (exits, seen, memory, guest) = run(&executor, way, &code, &[]);
            assert_eq!(exits, expected.0, "{}", way.name());
            assert_eq!(Seen { told: 0, ..seen }, expected.1, "{}", way.name());
            assert!(memory == expected.2 && guest == expected.3, "{}", way.name());
        }
    }
}

/// Copies to the pointer that the arguments begin with, as if that were what is left of a sum of which a0 is a part.
fn to_the_pointer(high: u32) -> (Code, Vec<u32>) {
    let program = Assembly::new().imm(Op::Lw, A2, Reg::A0, 0).op(Op::Sltu, A3, A2, Reg::A0).li(S0, OWN.data);
    let program = program.imm(Op::Lw, A4, S0, 0).op(Op::Add, A4, A4, A3).li(DRIVER, DRIVER_BASE);
    let words = [(A5, packet()), (T0, 8), (T1, 1), (S1, INFO_DMA)];
    let program = words.into_iter().fold(program, |program, (reg, value)| program.li(reg, value));
    let offsets = (COMMAND_WORDS.cast_signed()..).step_by(4);
    let program = [A2, A4, A5, T0, T1]
        .into_iter()
        .zip(offsets)
        .fold(program, |program, (reg, at)| program.store(Op::Sw, reg, DRIVER, at));
    let program = program.store(Op::Sw, S1, DRIVER, COMMAND_INFO.cast_signed());
    (program.imm(Op::Lw, Reg::ZERO, DRIVER, COMMAND_ISSUE.cast_signed()).ret().code(), vec![high])
}

#[test]
fn a_pointer_that_is_known_is_no_half_of_a_sum() {
    let executor = Executor::new().expect("a timer");
    let pointer = OWN.stack_end() - TASK_BLOCK;
    let address = 0x7000_0000_0000 | u64::from(pointer & !0xff);
    for high in [0x7000, 0x6fff] {
        let (code, data) = to_the_pointer(high);
        let run = |way: Way| {
            let mut guest = Guest::new(OWN, &code, 1);
            guest.slot.view().set_checks(way.checks);
            guest.set_word(OWN.data, data[0]);
            guest.set_word(OWN.stack_end() - HANDLER_ARGS, pointer);
            let mut memory = vec![0; 512];
            let host = HostBytes::exclusive(address, &mut memory);
            let mut unit = Unit { host, seen: Seen { done: 0, bytes: 0, refused: 0, before: Vec::new(), told: 0 } };
            let options = way.options.map(|options| Options { described: true, ..options });
            let translation = options.map(|options| translate(&code, &[], options));
            let limits = Limits { time: None, instructions: way.counts().then_some(10_000) };
            let task = Task { limits, host: Some(host), ..task(OWN, &code, translation.as_ref()) };
            let exit = executor.run(&mut guest.slot, &mut guest.frame, &task, &mut unit);
            (exit, Seen { told: 0, ..unit.seen }, memory)
        };
        for checks in [Checks::Page, Checks::Exact] {
            let expected = run(Way::interpreter(checks));
            for way in Way::translated(checks) {
                assert!(run(way) == expected, "{high:#x}, {}: {:?}", way.name(), run(way).1);
            }
        }
    }
}
