//! Faults as signals: many of them, on several threads at once, and those of the host itself, which nobody may hide.
#![allow(unsafe_code, reason = "a host that follows a null pointer")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hpu_vm::jit::{Atomics, Executor, Limits, Options, Slot, Task};
use hpu_vm::memory::Space;
use hpu_vm::{Checks, Code, Device, Exit, Inst, NoDevice, Op, Reg, Trap, View};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::STDOUT_BASE;

use crate::assembly::{A2, A3, Assembly};
use crate::guest::{CODE, FOREIGN, Guest, OWN, task, translate};

/// Nothing but page protection refuses an access.
const PAGE: Options = Options {
    checks: Checks::Page,
    atomics: Atomics::Shared,
    counting: false,
    observe: false,
    any_device: false,
    result: false,
    described: false,
};

/// Faults of the storm.
const STORM: u32 = 20_000;

fn null_load() -> Assembly {
    Assembly::new().imm(Op::Lw, A2, Reg::ZERO, 8).ret()
}

const NULL: Exit = Exit::Fault(Fault { cause: Cause::LoadAccess, pc: CODE, address: 8 });

/// A row of tasks is lent for as long as it is run; others may be run meanwhile, and theirs in turn.
#[test]
fn rows_of_two_slots_that_are_run_by_turns_have_their_own_faults() {
    let executor = Executor::new().expect("a timer");
    // By an address that the translator does not know, so that nothing but the signal tells.
    let load = |data| Assembly::new().li(A2, data).imm(Op::Lw, A3, A2, 0).imm(Op::Lw, A2, A3, 8).ret().code();
    let codes = [OWN, FOREIGN].map(|layout| load(layout.data));
    let translations = codes.each_ref().map(|code| translate(code, &[], PAGE));
    let mut guests = [Guest::new(OWN, &codes[0], 0), Guest::new(FOREIGN, &codes[1], 0)];
    let [first, second] = &mut guests;
    let tasks = [task(OWN, &codes[0], Some(&translations[0])), task(FOREIGN, &codes[1], Some(&translations[1]))];
    let mut exits = Vec::new();
    executor.bind(&mut first.slot, &tasks[0], &mut NoDevice, |outer| {
        exits.push(outer.run(&mut []));
        executor.bind(&mut second.slot, &tasks[1], &mut NoDevice, |inner| {
            exits.extend([inner.run(&mut []), outer.run(&mut []), inner.run(&mut [])]);
        });
        exits.push(outer.run(&mut []));
    });
    let refused = |exit: &Exit| matches!(exit, Exit::Fault(Fault { cause: Cause::LoadAccess, address: 8, .. }));
    assert!(exits.len() == 5 && exits.iter().all(refused), "{exits:?}");
}

#[test]
fn a_storm_of_faults_beside_a_thread_that_works() {
    let over = AtomicBool::new(false);
    let working = || {
        // 1000 times: adds up in memory.
        let program = Assembly::new().li(A2, OWN.data).li(A3, 1000);
        let top = program.pc();
        let program =
            program.imm(Op::Lw, Reg::A1, A2, 0).imm(Op::Addi, Reg::A1, Reg::A1, 1).store(Op::Sw, Reg::A1, A2, 0);
        let program = program.imm(Op::Addi, A3, A3, -1).branch(Op::Bne, A3, Reg::ZERO, top).ret();
        let (executor, code) = (Executor::new().expect("a timer"), program.code());
        let translation = translate(&code, &[], PAGE);
        let (mut guest, mut rounds) = (Guest::new(OWN, &code, 0), 0);
        while !over.load(Ordering::Relaxed) {
            let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, Some(&translation)), &mut NoDevice);
            rounds += 1;
            assert_eq!((exit, guest.word(OWN.data)), (Exit::Returned, 1000 * rounds));
        }
        rounds
    };
    let storming = || {
        let (executor, code) = (Executor::new().expect("a timer"), null_load().code());
        let translation = translate(&code, &[], PAGE);
        let mut guest = Guest::new(FOREIGN, &code, 0);
        for _ in 0..STORM {
            let exit = executor.run(&mut guest.slot, &mut [], &task(FOREIGN, &code, Some(&translation)), &mut NoDevice);
            assert_eq!(exit, NULL);
        }
    };
    thread::scope(|scope| {
        let worker = scope.spawn(working);
        let stormers = [scope.spawn(storming), scope.spawn(storming)];
        let ended: Vec<_> = stormers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("all faults are the task's"));
        println!("{} faults beside {} rounds of work", 2 * STORM, worker.join().expect("nobody else's faults"));
    });
}

/// What a device does to the host.
struct Broken;

impl Device for Broken {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        Ok(follow_null())
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Ok(())
    }
}

/// A host bug.
fn follow_null() -> u32 {
    let nothing = std::hint::black_box(std::ptr::null::<u32>());
    // SAFETY: it is not: this is to end the process.
    unsafe { nothing.read_volatile() }
}

/// A host bug whose address is an attacker's.
fn read_guarded(space: &Space) -> u8 {
    // SAFETY: it is not: nothing is mapped there, and this is to end the process.
    unsafe { space.base().read_volatile() }
}

fn run_null_load(device: &mut impl Device, program: &Assembly) -> (Exit, Guest) {
    let (executor, code) = (Executor::new().expect("a timer"), program.code());
    let translation = translate(&code, &[], PAGE);
    let mut guest = Guest::new(OWN, &code, 0);
    let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, Some(&translation)), device);
    (exit, guest)
}

/// Runs one of the ignored tests of this file in a process of its own.
fn child(name: &str) -> ExitStatus {
    let this = std::env::current_exe().expect("this test's path");
    let arguments = ["--exact", &format!("signals::{name}"), "--ignored", "--test-threads=1"];
    Command::new(this).args(arguments).output().expect("it starts").status
}

#[test]
fn faults_of_the_host_still_end_it() {
    for name in ["follows_null_after_tasks", "follows_null_in_a_device", "reads_a_guard"] {
        assert_eq!(child(name).signal(), Some(libc::SIGSEGV), "{name}");
    }
}

#[test]
#[ignore = "ends the process: for faults_of_the_host_still_end_it"]
fn follows_null_after_tasks() {
    assert_eq!(run_null_load(&mut NoDevice, &null_load()).0, NULL);
    follow_null();
}

#[test]
#[ignore = "ends the process: for faults_of_the_host_still_end_it"]
fn follows_null_in_a_device() {
    assert_eq!(run_null_load(&mut NoDevice, &null_load()).0, NULL);
    let program = Assembly::new().li(A2, 0x1b20_5088).imm(Op::Lw, A3, A2, 0).ret();
    run_null_load(&mut Broken, &program);
}

#[test]
#[ignore = "ends the process: for faults_of_the_host_still_end_it"]
fn reads_a_guard() {
    let (exit, guest) = run_null_load(&mut NoDevice, &null_load());
    assert_eq!(exit, NULL);
    read_guarded(guest.slot.space());
}

/// A device that runs a task of its own meanwhile, in another slot, which faults.
struct Nested<'e> {
    executor: &'e Executor,
    code: Code,
    slot: Slot,
}

impl Device for Nested<'_> {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        let translation = translate(&self.code, &[], PAGE);
        let inner = task(FOREIGN, &self.code, Some(&translation));
        assert_eq!(self.executor.run(&mut self.slot, &mut [], &inner, &mut NoDevice), NULL);
        Ok(1)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Ok(())
    }
}

#[test]
fn a_task_within_a_device_has_faults_of_its_own() {
    let inner = null_load().code();
    let executor = Executor::new().expect("a timer");
    let slot = Guest::new(FOREIGN, &inner, 0).slot;
    let mut device = Nested { executor: &executor, code: inner, slot };
    // The device, then a fault of the outer task.
    let program = Assembly::new().li(A2, 0x1b20_5088).imm(Op::Lw, A3, A2, 0).imm(Op::Lw, A3, A3, 15).ret();
    let code = program.code();
    let translation = translate(&code, &[], PAGE);
    let mut guest = Guest::new(OWN, &code, 0);
    let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, Some(&translation)), &mut device);
    assert_eq!(exit, Exit::Fault(Fault { cause: Cause::LoadAccess, pc: CODE + 12, address: 16 }));
}

/// As if others had the processor for much longer than a task may take: ticks come late.
struct Drowsy;

const SLEEP: Duration = Duration::from_millis(100);

impl Device for Drowsy {
    fn load(&mut self, _: &mut View<'_>, _: u32, _: u8) -> Result<u32, Trap> {
        // Until it has been looked at.
        let begin = Instant::now();
        while begin.elapsed() < SLEEP / 20 {}
        // SAFETY: an empty set is one, and these calls change the signals of this thread alone, for as long as it sleeps.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before), 0);
            thread::sleep(SLEEP);
            assert_eq!(libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()), 0);
        }
        Ok(0)
    }

    fn store(&mut self, _: &mut View<'_>, _: u32, _: u8, _: u32) -> Result<(), Trap> {
        Ok(())
    }
}

/// But a task that takes all the time there is is ended nevertheless.
#[test]
fn time_in_which_the_thread_does_not_run_is_not_the_tasks() {
    let executor = Executor::new().expect("a timer");
    let limits = Limits { time: Some(SLEEP.as_micros() as u64 / 5), instructions: None };
    let begin = || Assembly::new().li(A2, STDOUT_BASE).imm(Op::Lw, A3, A2, 4);
    let (ends, spins) = (begin().ret(), begin().inst(Inst::new(Op::Jal)).ret());
    for (program, returns) in [(ends, true), (spins, false)] {
        let code = program.code();
        let translation = translate(&code, &[], PAGE);
        for translation in [None, Some(&translation)] {
            let mut guest = Guest::new(OWN, &code, 0);
            let task = Task { limits, ..task(OWN, &code, translation) };
            let exit = executor.run(&mut guest.slot, &mut guest.frame, &task, &mut Drowsy);
            let ended = matches!(exit, Exit::Fault(Fault { cause: Cause::Watchdog, pc, .. }) if pc == CODE + 12);
            assert!(
                if returns { exit == Exit::Returned } else { ended },
                "translated {}: {exit:?}",
                translation.is_some()
            );
        }
    }
}
