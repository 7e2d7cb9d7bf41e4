//! Packets that translated code reads where they arrived: handlers see what they see in the interpreter, which copies each to its window.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;
#[path = "qemu/random.rs"]
#[expect(dead_code, reason = "a part of it is for other tests")]
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use assembly::{A2, A3, A4, A5, Assembly, S0, S1, T0, T1};
use guest::{MACHINE, OWN, Way, same, task, translate};
use hpu_vm::jit::{Executor, Limits, Options, Slot, Task, TaskDescriptor};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Checks, Code, Device, Exit, NoDevice, Op, Reg, RegionKind, Trap, View};
use random::Random;
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{DRIVER_BASE, PAGE, STACK_WINDOW};
use spin_abi::regs::{PACKET_ADDR, TASK_END, TASK_FIRST};

const PROGRAMS: u64 = if cfg!(debug_assertions) { 300 } else { 1500 };
/// Bytes of the packets of one task after another.
const LENGTHS: [u32; 5] = [1514, 300, 61, 300, 0];
/// What a program finds in its data: addresses of the packet in L1 and L2, of which no translator knows; and numbers.
const DATA: u32 = 256;
const NUMBERS: [u32; 6] = [0, 4, 34, 42, 60, 296];
/// Where it leaves what it has read.
const SEEN: i32 = 128;
/// What it waits for.
const GO: i32 = 64;
/// What it has read, all together; its packet; that by another way; another address of it.
const SUM: Reg = A2;
const PACKET: Reg = S1;
const MOVED: Reg = T1;
const UNKNOWN: Reg = A5;

fn packet() -> u32 {
    MACHINE.l1_packet_base(OWN.cluster, OWN.hpu)
}

/// An HPU with nothing but what these programs use.
struct Hpu {
    slot: Slot,
    data: Arc<Region>,
    block: TaskDescriptor,
}

impl Hpu {
    fn new(code: &Code, checks: Checks) -> Self {
        let mut space = Space::new().expect("a space");
        let windows = Region::new(2 * PAGE as usize).expect("memory");
        space.map_packet_in(&windows, (packet(), 0), (OWN.l2_packet(), PAGE)).expect("mapped");
        let region = |len: u32| Region::new(len as usize).expect("memory");
        let (data, stack) = (region(DATA), region(STACK_WINDOW));
        space.map(RegionKind::Data, OWN.data, &data, 0, DATA, Access::Write).expect("mapped");
        let stack_base = OWN.stack_end() - STACK_WINDOW;
        space.map(RegionKind::Stack, stack_base, &stack, 0, STACK_WINDOW, Access::Write).expect("mapped");
        space.set_task_alias(OWN.stack_end() - spin_abi::map::TASK_BLOCK);
        for segment in code.segments() {
            let region = Region::around(segment.base, &segment.bytes).expect("memory");
            let len = u32::try_from(segment.bytes.len()).expect("short");
            space.map(RegionKind::Code, segment.base, &region, 0, len, Access::Read).expect("mapped");
        }
        let words = [packet(), OWN.l2_packet()].into_iter().chain(NUMBERS);
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        space.copy_in(OWN.data, &bytes).expect("there");
        space.view().set_checks(checks);
        let mut block = TaskDescriptor::new(OWN.stack_end(), 0, 0, 0);
        block.set(PACKET_ADDR, packet());
        Self { slot: Slot::new(0, space), data, block }
    }

    fn data(&self) -> Vec<u8> {
        let mut bytes = vec![0; DATA as usize];
        self.data.read(0, &mut bytes).expect("inside");
        bytes
    }

    /// Whether a task has had the packet copied to L1.
    fn copies(&self) -> bool {
        self.slot.packet_windows().expect("there are some").expected_copy_len(1) == 1
    }
}

/// The bytes of a packet.
fn frame(number: u32, len: u32) -> Vec<u8> {
    (0..len).map(|at| (at + 977 * number).wrapping_mul(0x9e37_79b1).to_le_bytes()[3] | 1).collect()
}

/// A program's beginning: `PACKET` is where the packet is, `UNKNOWN` too, for all that the translator sees.
fn begin() -> Assembly {
    let field = (PACKET_ADDR - TASK_FIRST).cast_signed();
    let program = Assembly::new().li(S0, OWN.data).imm(Op::Lw, T0, Reg::A0, 0).imm(Op::Lw, PACKET, T0, field);
    program.imm(Op::Addi, MOVED, PACKET, 14).imm(Op::Lw, UNKNOWN, S0, 0).li(SUM, 0)
}

/// `SUM` becomes something that depends on a register and on what it was.
fn mix(program: Assembly, reg: Reg) -> Assembly {
    program.op(Op::Add, SUM, SUM, reg).imm(Op::Slli, T0, SUM, 7).op(Op::Xor, SUM, SUM, T0)
}

/// Some bytes of the packet, or near its ends.
fn place(random: &mut Random) -> i32 {
    let len = random.choose(&LENGTHS).cast_signed();
    let near = random.below(12).cast_signed();
    let within = random.below(300).cast_signed();
    random.choose(&[near, near, len - near, len + near, within, within, near - 16, 4090 + near / 2])
}

/// Adds up rows of so many words, as many as the program finds or as the translator knows; from some byte of the packet on.
fn rows(random: &mut Random, program: Assembly) -> Assembly {
    let words = random.choose(&[1, 1, 2, 4, 4, 8, 12]);
    let turns = random.choose(&[0, 1, 2, 3, 4, 5, 9, 17, 60 / words as u32]);
    let from = random.choose(&[PACKET, PACKET, MOVED, UNKNOWN]);
    let start = place(random).clamp(-2048, 2047);
    let program = program.imm(Op::Addi, A3, from, start);
    let row = 4 * words;
    // A counter of turns or of bytes, or an end.
    let (program, step, end) = match random.below(3) {
        0 => (program.li(A4, turns), Some(-1), Reg::ZERO),
        1 => (program.li(A4, turns * row as u32), Some(-row), Reg::ZERO),
        _ => (program.li(A4, turns * row as u32).op(Op::Add, A4, A4, A3), None, A4),
    };
    let program = if random.one_in(8) { program.imm(Op::Addi, A4, A4, 1) } else { program };
    let again = program.pc();
    let loads =
        (0..words).fold(program, |program, word| program.imm(Op::Lw, T0, A3, 4 * word).op(Op::Add, SUM, SUM, T0));
    let program = loads.imm(Op::Addi, A3, A3, row);
    let (program, counter) = match step {
        Some(step) => (program.imm(Op::Addi, A4, A4, step), A4),
        None => (program, A3),
    };
    program.branch(Op::Bne, counter, end, again)
}

/// One thing or another that a handler does with its packet.
fn something(random: &mut Random, program: Assembly) -> Assembly {
    let load = random.choose(&[Op::Lw, Op::Lw, Op::Lhu, Op::Lh, Op::Lbu, Op::Lb]);
    let at = place(random).clamp(-2048, 2047);
    match random.below(24) {
        // What no translator takes for the packet: a load, a store.
        0 => mix(program.imm(load, A3, UNKNOWN, at), A3),
        1 | 2 => program.store(random.choose(&[Op::Sw, Op::Sh, Op::Sb]), SUM, UNKNOWN, at.clamp(0, 40)),
        // In L2.
        3 => program.imm(Op::Lw, A3, S0, 4).store(Op::Sw, SUM, A3, at.clamp(0, 40)),
        4 => mix(program.imm(Op::Lw, A3, S0, 4).imm(load, A3, A3, at.clamp(0, 40)), A3),
        // The packet is wanted in L1 from the beginning.
        5 if random.one_in(6) => program.store(Op::Sw, SUM, PACKET, at.clamp(0, 40)),
        // The pointer goes on, by a number of which the translator knows nothing.
        6 => {
            let number = 8 + 4 * random.below(6).cast_signed();
            program.imm(Op::Lw, A3, S0, number).op(Op::Add, MOVED, PACKET, A3)
        }
        7..=10 => rows(random, program),
        // Seldom done, or often.
        11 | 12 => {
            let over = program.pc() + 12;
            let program = program.imm(Op::Andi, A3, SUM, 1).branch(Op::Beq, A3, Reg::ZERO, over);
            program.imm(load, SUM, random.choose(&[PACKET, MOVED]), at)
        }
        _ => mix(program.imm(load, A3, random.choose(&[PACKET, PACKET, MOVED]), at), A3),
    }
}

fn program(seed: u64) -> Code {
    let random = &mut Random::new(seed);
    let program = (0..2 + random.below(8)).fold(begin(), |program, _| something(random, program));
    program.imm(Op::Lw, A3, S0, SEEN).op(Op::Add, SUM, SUM, A3).store(Op::Sw, SUM, S0, SEEN).ret().code()
}

/// How a task ends, and what it leaves in data and frame.
type End = (Exit, Vec<u8>, Vec<u8>);

/// What comes of a few tasks, and whether packets were copied.
fn run(executor: &Executor, way: Way, code: &Code) -> (Vec<End>, bool) {
    let mut hpu = Hpu::new(code, way.checks);
    let options = way.options.map(|options| Options { described: true, ..options });
    let translation = options.map(|options| translate(code, &[], options));
    let limits = Limits { time: None, instructions: way.counts().then_some(20_000) };
    let task = Task { limits, ..task(OWN, code, translation.as_ref()) };
    let ends = (0..).zip(LENGTHS).map(|(number, len)| {
        let mut frame = frame(number, len);
        let Hpu { slot, block, .. } = &mut hpu;
        // Not all of the longest is shown.
        slot.set_packet_len(len.min(1000)).expect("it is no longer than the window");
        slot.describe(block, []);
        let exit = executor.run(slot, &mut frame, &task, &mut NoDevice);
        (exit, hpu.data(), frame)
    });
    let ends = ends.collect();
    (ends, hpu.copies())
}

#[test]
fn handlers_see_what_they_see_in_the_interpreter() {
    let executor = Executor::new().expect("a timer");
    let mut ends = BTreeMap::new();
    for seed in 0..PROGRAMS {
        let code = program(seed);
        for checks in [Checks::Page, Checks::Exact] {
            let (expected, _) = run(&executor, Way::interpreter(checks), &code);
            for way in Way::translated(checks) {
                let (found, copies) = run(&executor, way, &code);
                for (number, (expected, found)) in expected.iter().zip(&found).enumerate() {
                    let name = format!("seed {seed}, {}, packet {number}", way.name());
                    assert!(same(checks, expected.0, found.0), "{name}: {:x?} instead of {:x?}", found.0, expected.0);
                    assert!(expected.1 == found.1, "{name}: data");
                    assert!(expected.2 == found.2, "{name}: frame");
                }
                let returned = expected.iter().all(|(exit, ..)| *exit == Exit::Returned);
                *ends.entry((checks == Checks::Page, copies, returned)).or_insert(0) += 1;
            }
        }
    }
    println!("page checks, packets copied, all returned: {ends:?}");
    for kind in [(true, false, true), (true, true, true), (true, true, false)] {
        assert!(ends.get(&kind).is_some_and(|&count| count > PROGRAMS / 8), "not a mixture: {ends:?}");
    }
}

/// Programs of which packets need not be copied, and others.
#[test]
fn only_who_wants_a_copy_gets_one() {
    let sum_up = |program: Assembly, from: Reg| {
        let program = program.imm(Op::Addi, A3, from, 42).li(A4, 16);
        let again = program.pc();
        let program = program.imm(Op::Lw, T0, A3, 0).op(Op::Add, SUM, SUM, T0).imm(Op::Addi, A3, A3, 4);
        program.imm(Op::Addi, A4, A4, -1).branch(Op::Bne, A4, Reg::ZERO, again)
    };
    // Piece by piece, with something in between.
    let look_up = |program: Assembly| {
        let program = program.imm(Op::Addi, A3, PACKET, 0).li(A4, 16);
        let again = program.pc();
        let program = program.imm(Op::Lbu, T0, A3, 0).store(Op::Sw, T0, S0, SEEN).imm(Op::Addi, A3, A3, 1);
        program.imm(Op::Addi, A4, A4, -1).branch(Op::Bne, A4, Reg::ZERO, again)
    };
    let read = |program: Assembly, from: Reg, at: i32| program.imm(Op::Lhu, A3, from, at);
    let cases = [
        ("nothing", begin(), false),
        ("headers", read(read(begin(), PACKET, 12), MOVED, 9), false),
        ("the last bytes", read(begin(), PACKET, 298), false),
        ("headers, and a sum in a loop", sum_up(read(begin(), PACKET, 12), MOVED), true),
        ("beyond the end", read(begin(), PACKET, 299), true),
        ("by another way", read(begin(), UNKNOWN, 12), true),
        ("a sum by another way", sum_up(begin(), UNKNOWN), true),
        ("a store by another way", begin().store(Op::Sb, SUM, UNKNOWN, 0), true),
        ("a store", read(begin(), PACKET, 12).store(Op::Sb, SUM, PACKET, 0), true),
        ("in a loop", look_up(begin()), true),
    ];
    let executor = Executor::new().expect("a timer");
    for (name, program, copies) in cases {
        let code = program.ret().code();
        let translation =
            translate(&code, &[], Options { checks: Checks::Page, described: true, ..Options::default() });
        let mut hpu = Hpu::new(&code, Checks::Page);
        let Hpu { slot, block, .. } = &mut hpu;
        slot.set_packet_len(300).expect("it is no longer than the window");
        slot.describe(block, []);
        let exit = executor.run(slot, &mut frame(0, 300), &task(OWN, &code, Some(&translation)), &mut NoDevice);
        assert_eq!((exit, hpu.copies()), (Exit::Returned, copies), "{name}");
    }
}

/// Writes to the packet in L1 when it is looked at.
struct Writes;

impl Device for Writes {
    fn load(&mut self, view: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        view.copy_in(packet() + 4, &[9, 8, 7, 6]).expect("the window is writable");
        Ok(5)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Err(Trap::Fault(Cause::DeviceAccess))
    }
}

/// What a device does meanwhile is seen.
#[test]
fn what_a_device_writes_is_read() {
    let executor = Executor::new().expect("a timer");
    let program = begin().li(A4, DRIVER_BASE + TASK_END).imm(Op::Lw, A3, PACKET, 4);
    let program = mix(mix(program, A3).imm(Op::Lw, A3, A4, 0), A3).imm(Op::Lw, A3, PACKET, 4);
    let code = mix(program, A3).store(Op::Sw, SUM, S0, SEEN).ret().code();
    let run = |options: Option<Options>| {
        let translation = options.map(|options| translate(&code, &[], options));
        let mut hpu = Hpu::new(&code, Checks::Page);
        let Hpu { slot, block, .. } = &mut hpu;
        slot.describe(block, []);
        let exit = executor.run(slot, &mut frame(0, 64), &task(OWN, &code, translation.as_ref()), &mut Writes);
        (exit, hpu.data())
    };
    let options = Options { checks: Checks::Page, described: true, ..Options::default() };
    assert_eq!(run(Some(options)), run(None));
    assert_eq!(run(None).0, Exit::Returned);
}

/// What was the packet may be somebody else's by then.
#[test]
fn a_task_without_a_packet_does_not_read_the_one_before() {
    let executor = Executor::new().expect("a timer");
    let code = begin().imm(Op::Lw, A3, PACKET, 4).ret().code();
    let options = Options { checks: Checks::Page, described: true, ..Options::default() };
    let translation = translate(&code, &[], options);
    let mut hpu = Hpu::new(&code, Checks::Page);
    let Hpu { slot, block, .. } = &mut hpu;
    let exits = executor.bind(slot, &task(OWN, &code, Some(&translation)), &mut NoDevice, |bound| {
        [Some(&mut frame(0, 64)[..]), None].map(|packet| (bound.run_task(block, [], packet), bound.exit()))
    });
    assert!(exits[0].0 && !exits[1].0, "{exits:?}");
    assert!(matches!(exits[1].1, Exit::Fault(Fault { cause: Cause::LoadAccess, .. })), "{exits:?}");
}

/// A task that is parked keeps the packet as it was, and goes on to see what it wrote there.
#[test]
fn a_task_that_goes_on_sees_its_own_packet() {
    let executor = Executor::new().expect("a timer");
    let read = |program: Assembly, at: i32| mix(program.imm(Op::Lw, A3, PACKET, at), A3);
    // Until there is something in a word of its data.
    let wait = |program: Assembly, at: i32| {
        let again = program.pc();
        program.imm(Op::Lw, A3, S0, at).branch(Op::Beq, A3, Reg::ZERO, again)
    };
    let program = read(wait(read(begin(), 4), GO), 4).store(Op::Sw, SUM, UNKNOWN, 8);
    let code = read(wait(read(program, 8), GO + 4), 8).store(Op::Sw, SUM, S0, SEEN).ret().code();
    let run = |options: Option<Options>, waits: u32| {
        let translation = options.map(|options| translate(&code, &[], options));
        let mut hpu = Hpu::new(&code, Checks::Page);
        let task = Task { may_park: true, ..task(OWN, &code, translation.as_ref()) };
        let mut seen = Vec::new();
        for number in 0..3 {
            let mut packet = frame(number, 64);
            hpu.data.write(GO as usize, &[0; 8]).expect("inside");
            let Hpu { slot, block, data } = &mut hpu;
            slot.set_packet_len(64).expect("it is no longer than the window");
            slot.describe(block, []);
            let (mut exit, mut parked) = (executor.run(slot, &mut packet, &task, &mut NoDevice), 0);
            while exit == Exit::Parked {
                parked += 1;
                let gone_on = parked / waits.max(1);
                data.write(GO as usize, &[u8::from(gone_on > 0), 0, 0, 0, u8::from(gone_on > 1)]).expect("inside");
                // It comes back elsewhere.
                packet = packet.clone();
                exit = executor.resume(slot, &mut packet, &task, &mut NoDevice);
            }
            assert!(parked >= 2 * waits, "{parked}");
            seen.push((exit, hpu.data(), packet));
        }
        seen
    };
    let expected = run(None, 1);
    assert!(expected.iter().all(|(exit, ..)| *exit == Exit::Returned), "{expected:?}");
    for described in [false, true] {
        for waits in [1, 3] {
            let options = Options { checks: Checks::Page, described, ..Options::default() };
            assert!(run(Some(options), waits) == expected, "{options:?}, {waits}");
        }
    }
}
