//! Handlers that poll a word of memory until another handler writes it, all on one thread.

use std::sync::Arc;

use hpu_vm::jit::{Executor, Limits, Options, Task};
use hpu_vm::memory::Region;
use hpu_vm::{Checks, Code, Exit, NoDevice, Op, Reg, RegionKind};
use spin_abi::fault::Cause;
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::COMMAND_WAIT;

use crate::assembly::{A2, A3, A4, Assembly, S0, S1, T1};
use crate::guest::{CODE, Guest, MACHINE, OWN, Place, task, translate};
use crate::regions::divided;
use crate::waits::Waits;

/// Waits for the word that A2 points to.
fn polls(program: Assembly) -> Assembly {
    let head = program.pc();
    program.imm(Op::Lw, A3, A2, 0).branch(Op::Beq, A3, Reg::ZERO, head)
}

/// Waits for the word at `from`, then writes 7 to `to`.
fn waiter(from: u32, to: u32) -> Code {
    let program = polls(Assembly::new().li(A2, from).li(A4, to));
    program.li(A3, 7).store(Op::Sw, A3, A4, 0).ret().code()
}

/// Writes 1 to `first`, waits for the word at `from`, then writes 7 to `to`.
fn starter(first: u32, from: u32, to: u32) -> Code {
    let program = Assembly::new().li(A2, first).li(A3, 1).store(Op::Sw, A3, A2, 0).li(A2, from).li(A4, to);
    polls(program).li(A3, 7).store(Op::Sw, A3, A4, 0).ret().code()
}

const _: () = assert!(OWN.hpu + 1 < MACHINE.hpus_per_cluster);

/// Two guests with the same `.data`.
fn pair(codes: [&Code; 2]) -> [Guest; 2] {
    let data = Region::new(crate::guest::DATA_LEN as usize).expect("memory");
    let mut hpu = OWN.hpu;
    codes.map(|code| {
        let place = Place { hpu, ..OWN };
        hpu += 1;
        let ranges = place.ranges().map(|(kind, base, len)| {
            let own = || Region::new(len as usize).expect("memory");
            (kind, base, len, if kind == RegionKind::Data { Arc::clone(&data) } else { own() })
        });
        Guest::with(place, code, &ranges)
    })
}

#[test]
fn two_that_wait_for_each_other_both_finish() {
    let [a, b, c, d] = [0, 64, 128, 192].map(|at| OWN.data + at);
    // As a whole, and with the loop that waits in a shared region.
    for choice in [0, 2] {
        let codes = [waiter(a, b), starter(a, b, c)].map(|code| divided(code, choice));
        let waits = |code: &Code| translate(code, &[], Options::default()).waits();
        assert!(codes.iter().all(waits), "choice {choice}");
        both_finish(&codes, [b, c, d]);
    }
}

/// Runs two handlers that wait for each other; the words at `written` are 7, 7 and 0 in the end.
fn both_finish(codes: &[Code; 2], written: [u32; 3]) {
    let executor = Executor::new().expect("a timer");
    let counting = Options { counting: true, ..Options::default() };
    for options in [Some(Options::default()), Some(counting), None] {
        let translations = [0, 1].map(|index| options.map(|options| translate(&codes[index], &[], options)));
        let mut guests = pair([&codes[0], &codes[1]]);
        let tasks = [0, 1].map(|index| {
            let place = Place { hpu: OWN.hpu + u32::try_from(index).unwrap(), ..OWN };
            let limits = Limits { time: Some(10_000_000), instructions: None };
            Task { may_park: true, limits, ..task(place, &codes[index], translations[index].as_ref()) }
        });
        // The first waits for what nobody has written yet: it leaves, and the second has the thread.
        assert_eq!(executor.run(&mut guests[0].slot, &mut [], &tasks[0], &mut NoDevice), Exit::Parked, "{options:?}");
        let (mut exits, mut begun) = ([Exit::Parked; 2], false);
        for turn in (0..100).map(|turn| (turn + 1) % 2) {
            if exits[turn] != Exit::Parked {
                continue;
            }
            let (slot, task) = (&mut guests[turn].slot, &tasks[turn]);
            exits[turn] = if turn == 1 && !begun {
                begun = true;
                executor.run(slot, &mut [], task, &mut NoDevice)
            } else {
                executor.resume(slot, &mut [], task, &mut NoDevice)
            };
        }
        assert_eq!(exits, [Exit::Returned; 2], "{options:?}");
        assert_eq!(written.map(|address| guests[0].word(address)), [7, 7, 0], "{options:?}");
    }
}

/// Runs a task that never ends, and resumes it when it is parked, up to `most` times. Its limit is 300 ms, far more than a
/// busy machine keeps a thread waiting.
fn parks_until_ended(program: &Assembly, may_park: bool, most: u32) {
    let executor = Executor::new().expect("a timer");
    let code = program.code();
    let translation = translate(&code, &[], Options::default());
    for translation in [None, Some(&translation)] {
        let limits = Limits { time: Some(300_000), instructions: None };
        let task = Task { limits, may_park, ..task(OWN, &code, translation) };
        let (mut guest, mut device, mut parks) = (Guest::new(OWN, &code, 0), Waits::new(1), 0);
        let mut exit = executor.run(&mut guest.slot, &mut [], &task, &mut device);
        while exit == Exit::Parked && parks < most {
            parks += 1;
            exit = executor.resume(&mut guest.slot, &mut [], &task, &mut device);
        }
        let ended = matches!(exit, Exit::Fault(fault) if fault.cause == Cause::Watchdog);
        assert!(ended && parks > 0, "translated {}: {exit:?} after {parks} parks", translation.is_some());
        // The next task has all of the time again.
        assert_eq!(executor.run(&mut guest.slot, &mut [], &task, &mut device), Exit::Parked);
    }
}

/// Who has a limit of instructions alone is left as soon as it may be waiting, at the same places each time.
#[test]
fn without_a_clock_who_polls_is_left_at_once() {
    let code = polls(Assembly::new().li(A2, OWN.data)).ret().code();
    let translation = translate(&code, &[], Options { counting: true, ..Options::default() });
    let executor = Executor::new().expect("a timer");
    for translation in [None, Some(&translation)] {
        let limits = Limits { time: None, instructions: Some(50_000) };
        let run = |may_park| {
            let task = Task { limits, may_park, ..task(OWN, &code, translation) };
            let (mut guest, mut left) = (Guest::new(OWN, &code, 0), Vec::new());
            let mut exit = executor.run(&mut guest.slot, &mut [], &task, &mut NoDevice);
            while exit == Exit::Parked && left.len() < 50_000 {
                left.push(guest.slot.hart().retired());
                exit = executor.resume(&mut guest.slot, &mut [], &task, &mut NoDevice);
            }
            assert!(matches!(exit, Exit::Fault(fault) if fault.cause == Cause::InstructionLimit), "{exit:?}");
            left
        };
        let left = run(true);
        // The interpreter looks every few thousand instructions.
        assert!(left.len() > 5 && left.is_sorted() && left[0] < 10_000, "{left:?}");
        assert_eq!(left, run(true));
        assert_eq!(run(false), []);
    }
}

/// Nobody else would have who has no limit at all leave.
#[test]
fn without_any_limit_who_polls_is_left_at_once() {
    let code = polls(Assembly::new().li(A2, OWN.data)).ret().code();
    let translation = translate(&code, &[], Options::default());
    let executor = Executor::new().expect("a timer");
    for translation in [None, Some(&translation)] {
        let limits = Limits { time: None, instructions: None };
        let task = Task { limits, may_park: true, ..task(OWN, &code, translation) };
        let mut guest = Guest::new(OWN, &code, 0);
        for _ in 0..3 {
            assert_eq!(executor.run(&mut guest.slot, &mut [], &task, &mut NoDevice), Exit::Parked);
            assert_eq!(executor.resume(&mut guest.slot, &mut [], &task, &mut NoDevice), Exit::Parked);
        }
        guest.set_word(OWN.data, 1);
        assert_eq!(executor.resume(&mut guest.slot, &mut [], &task, &mut NoDevice), Exit::Returned);
    }
}

#[test]
fn the_time_limit_of_who_polls_is_for_all_its_turns() {
    // Who is gone on with looks once, which takes tens of nanoseconds at least.
    parks_until_ended(&polls(Assembly::new().li(A2, OWN.data)).ret(), true, u32::MAX);
}

/// Who may take less than from one look of the clock to the next is left all the same, not ended: mostly, since this thread may be kept
/// from running just when it would leave.
#[test]
fn who_polls_is_left_whatever_its_limit() {
    let code = polls(Assembly::new().li(A2, OWN.data)).ret().code();
    let executor = Executor::new().expect("a timer");
    for checks in [Checks::Page, Checks::Exact] {
        let translation = translate(&code, &[], Options { checks, ..Options::default() });
        for (translation, time) in [(None, 100), (None, 500), (Some(&translation), 20), (Some(&translation), 500)] {
            let limits = Limits { time: Some(time), instructions: None };
            let task = Task { limits, may_park: true, ..task(OWN, &code, translation) };
            let mut guest = Guest::new(OWN, &code, 0);
            let exits = (0..20).map(|_| executor.run(&mut guest.slot, &mut [], &task, &mut NoDevice));
            let parks = exits.filter(|&exit| exit == Exit::Parked).count();
            assert!(parks > 10, "{checks:?}, translated {}, {time} us: {parks} of 20", translation.is_some());
        }
    }
}

#[test]
fn the_time_limit_of_who_waits_for_a_device_is_for_all_its_turns() {
    let program = Assembly::new().li(A2, DRIVER_BASE + COMMAND_WAIT);
    let head = program.pc();
    let program = program.li(A3, 2000);
    let spin = program.pc();
    let program = program.imm(Op::Addi, A3, A3, -1).branch(Op::Bne, A3, Reg::ZERO, spin);
    // A turn takes a microsecond at least.
    parks_until_ended(&program.store(Op::Sw, A4, A2, 0).jal(Reg::ZERO, head), false, u32::MAX);
}

/// The function that waits and the one that reads the word are translated apart: no loop shows that the task waits.
#[test]
fn a_wait_by_way_of_another_function_leaves() {
    let (wait, read) = (CODE + 0x40, CODE + 0x80);
    let at = |program: Assembly, address: u32| {
        let gap = (address - program.pc()) as usize;
        program.raw(&vec![0; gap])
    };
    let program = Assembly::new().imm(Op::Addi, S0, Reg::RA, 0).li(A2, OWN.data).li(T1, wait);
    let program = program.imm(Op::Jalr, Reg::RA, T1, 0).imm(Op::Jalr, Reg::ZERO, S0, 0);
    let program = at(program, wait).imm(Op::Addi, S1, Reg::RA, 0).jal(Reg::RA, read);
    let program = program.branch(Op::Beq, A3, Reg::ZERO, wait + 4).imm(Op::Jalr, Reg::ZERO, S1, 0);
    let program = at(program, read).imm(Op::Lw, A3, A2, 0).ret();
    let code = program.code().with_functions([CODE, wait, read].into_iter());
    let executor = Executor::new().expect("a timer");
    let counting = Options { counting: true, ..Options::default() };
    for options in [Some(Options::default()), Some(counting), None] {
        let translation = options.map(|options| translate(&code, &[wait], options));
        for time in [Some(100_000), None] {
            // Without the clock it would never end: then the number of instructions is limited, too.
            let instructions = (time.is_none() && options != Some(Options::default())).then_some(1_000_000);
            if time.is_none() && instructions.is_none() {
                continue;
            }
            let limits = Limits { time, instructions };
            let task = Task { may_park: true, limits, ..task(OWN, &code, translation.as_ref()) };
            let mut guest = Guest::new(OWN, &code, 0);
            for turn in 0..3 {
                let exit = match turn {
                    0 => executor.run(&mut guest.slot, &mut [], &task, &mut NoDevice),
                    _ => executor.resume(&mut guest.slot, &mut [], &task, &mut NoDevice),
                };
                assert_eq!(exit, Exit::Parked, "{options:?}, {limits:?}, turn {turn}");
            }
            guest.set_word(OWN.data, 1);
            let mut exit = Exit::Parked;
            for _ in 0..100 {
                if exit == Exit::Parked {
                    exit = executor.resume(&mut guest.slot, &mut [], &task, &mut NoDevice);
                }
            }
            assert_eq!(exit, Exit::Returned, "{options:?}, {limits:?}");
        }
    }
}
