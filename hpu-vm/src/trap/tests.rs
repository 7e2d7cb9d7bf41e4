#![cfg(target_arch = "x86_64")]

use std::cell::Cell;
use std::ffi::c_void;
use std::mem;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{DRIVER_BASE, L1_ALIAS, PAGE, STDOUT_BASE};
use spin_abi::regs::{DOORBELL, DRIVER_SIZE, HANDLER_MEM_ADDR};

use super::monitor::Monitor;
use super::watch::CHECK_PERIOD;
use super::watchdog::install;
use super::{TrapError, TrapGuard, Watchdog};
use crate::jit::{ExitReason, Location, State};
use crate::memory::{Access, Region, Space, TaskStart};
use crate::view::RegionKind;

const GUEST_PC: u32 = 0x1d00_0010;
const L2: u32 = 0x1c40_0000;
const STACK: u32 = 0x1000_1000;
/// Offset of the epilogue.
const EPILOGUE: usize = 32;

/// mov eax, [rdi]; ret
const LOAD: &[u8] = &[0x8b, 0x07, 0xc3];
/// mov [rdi], esi; ret
const STORE: &[u8] = &[0x89, 0x37, 0xc3];
/// lock xadd [rdi], esi; mov eax, esi; ret
const XADD: &[u8] = &[0xf0, 0x0f, 0xc1, 0x37, 0x89, 0xf0, 0xc3];
/// jmp to itself
const SPIN: &[u8] = &[0xeb, 0xfe];

/// A body, and an epilogue that returns -1 (mov eax, -1; ret).
struct Body {
    memory: *mut c_void,
}

thread_local! {
    /// The body that this thread looks up: address and whether its access is atomic.
    static BODY: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

fn lookup(pc: usize) -> Option<Location> {
    let (start, atomic) = BODY.get();
    (start..start + EPILOGUE).contains(&pc).then_some(Location {
        pc: GUEST_PC,
        atomic,
        body: true,
        waits: false,
        fault_return: start + EPILOGUE,
    })
}

impl Body {
    fn new(code: &[u8], atomic: bool) -> Self {
        let mut bytes = [0xcc; EPILOGUE + 6];
        bytes[..code.len()].copy_from_slice(code);
        bytes[EPILOGUE..].copy_from_slice(&[0xb8, 0xff, 0xff, 0xff, 0xff, 0xc3]);
        // SAFETY: a new page, written before it becomes executable.
        let memory = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let memory = rustix::mm::mmap_anonymous(null_mut(), 4096, protection, MapFlags::PRIVATE).expect("a page");
            memory.cast::<[u8; EPILOGUE + 6]>().write(bytes);
            rustix::mm::mprotect(memory, 4096, MprotectFlags::READ | MprotectFlags::EXEC).expect("executable");
            memory
        };
        BODY.set((memory.addr(), atomic));
        Self { memory }
    }

    fn call(&self, at: *mut u8, value: u32) -> u32 {
        // SAFETY: the page contains a function of this signature. Its access ends, or the handlers end it.
        unsafe { mem::transmute::<*mut c_void, extern "C" fn(*mut u8, u32) -> u32>(self.memory)(at, value) }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        BODY.set((0, false));
        // SAFETY: the page of `new`, which is not executed any more.
        unsafe { rustix::mm::munmap(self.memory, 4096).expect("unmapped") };
    }
}

/// A space with a page of stack, a read-only page, and the packet window.
fn space() -> Space {
    let mut space = Space::new().expect("a space");
    let page = || Region::new(PAGE as usize).expect("a region");
    space.map(RegionKind::Stack, STACK, &page(), 0, PAGE, Access::Write).expect("mapped");
    space.map(RegionKind::Code, 0x1d00_0000, &page(), 0, 8, Access::Read).expect("mapped");
    space.set_l1_alias(0x1000_0000, 0x4_0000).expect("an alias");
    space.map_l2_packet(L2).expect("mapped");
    space
}

/// Result of a body that accesses guest address `address`, and the state after it.
fn access(space: &mut Space, body: &Body, address: i64, packet: &mut [u8]) -> (u32, State) {
    install().expect("handlers");
    let mut state = State::new(0);
    let at = space.base().wrapping_offset(isize::try_from(address).unwrap());
    let result = space.with_packet(packet, TaskStart::New, |layout, _| {
        (state.signals.layout, state.signals.lookup) = (layout, lookup);
        let watchdog = Watchdog::new().expect("a watchdog");
        // SAFETY: the state is this function's, the body is looked up and accesses the layout's addresses.
        let _guard = unsafe { TrapGuard::new(watchdog.watch(), &raw mut state) };
        // SAFETY: the guard refers to the state.
        unsafe { watchdog.watch().start_task(&raw mut state) };
        body.call(at, 5)
    });
    (result, state)
}

fn fault(space: &mut Space, body: &Body, address: i64) -> Fault {
    let (result, state) = access(space, body, address, &mut []);
    assert_eq!((result, state.exit), (u32::MAX, ExitReason::Faulted as u32), "{address:#x}");
    assert_eq!(state.device_touched.load(Relaxed) != 0, state.fault().cause == Cause::DeviceAccess);
    state.fault()
}

fn expected(cause: Cause, address: u32) -> Fault {
    Fault { cause, pc: GUEST_PC, address }
}

#[test]
fn accesses_of_mapped_memory_go_through() {
    let mut space = space();
    let store = Body::new(STORE, false);
    access(&mut space, &store, i64::from(STACK) + 0xffc, &mut []);
    drop(store);
    let load = Body::new(LOAD, false);
    let (loaded, state) = access(&mut space, &load, i64::from(STACK) + 0xffc, &mut []);
    assert_eq!((loaded, state.exit), (5, ExitReason::Returned as u32));
}

#[test]
fn refused_accesses_end_the_body_with_their_cause() {
    use Cause::{DeviceAccess, LoadAccess, StackOverflow, StoreAccess};
    let mut space = space();
    let body = Body::new(LOAD, false);
    let driver = i64::from(DRIVER_BASE);
    let loads = [
        (0x2000_0000, LoadAccess),
        (0, LoadAccess),
        // Addresses below the first byte and above the last, where 32-bit addresses wrap around.
        (-4, LoadAccess),
        ((1 << 32) + 8, LoadAccess),
        (0xffff_fffc, LoadAccess),
        (i64::from(STACK) - 4, StackOverflow),
        (i64::from(STACK) - 0x1004, LoadAccess),
        // The page below the stack in the alias window.
        (0x1b00_0ffc, StackOverflow),
        (driver + i64::from(DOORBELL), DeviceAccess),
        (driver + i64::from(HANDLER_MEM_ADDR), DeviceAccess),
        (driver + i64::from(DRIVER_SIZE), LoadAccess),
        (i64::from(STDOUT_BASE), DeviceAccess),
        // Behind the window of the packet.
        (i64::from(L2) + 0x1000, LoadAccess),
    ];
    for (address, cause) in loads {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "guest addresses wrap around")]
        let named = address as u32;
        assert_eq!(fault(&mut space, &body, address), expected(cause, named), "{address:#x}");
    }
    drop(body);
    let body = Body::new(STORE, false);
    for (address, cause) in [(0x2000_0000, StoreAccess), (0x1d00_0000, StoreAccess), (STACK - 4, StackOverflow)] {
        assert_eq!(fault(&mut space, &body, address.into()), expected(cause, address));
    }
    drop(body);
    // A load at a site that is marked as an atomic.
    let body = Body::new(LOAD, true);
    assert_eq!(fault(&mut space, &body, 0x2000_0000), expected(StoreAccess, 0x2000_0000));
    drop(body);
    let body = Body::new(XADD, true);
    assert_eq!(fault(&mut space, &body, 0x1d00_0000), expected(StoreAccess, 0x1d00_0000));
}

#[test]
fn the_packet_appears_in_l2_under_the_first_access() {
    let mut space = space();
    let load = Body::new(LOAD, false);
    let (loaded, _) = access(&mut space, &load, L2.into(), &mut [1, 0, 0, 0]);
    assert_eq!((loaded, space.l2_read(), space.l2_written()), (1, true, false));
    // Without a fault from now on, so the packet must be copied before.
    let (loaded, _) = access(&mut space, &load, L2.into(), &mut [2, 0, 0, 0]);
    assert_eq!(loaded, 2);
    drop(load);

    let store = Body::new(STORE, false);
    let mut packet = [3, 0, 0, 0, 9];
    let (_, state) = access(&mut space, &store, L2.into(), &mut packet);
    assert_eq!((state.exit, packet, space.l2_written()), (ExitReason::Returned as u32, [5, 0, 0, 0, 9], true));
    drop(store);
    let load = Body::new(LOAD, false);
    assert_eq!(access(&mut space, &load, L2.into(), &mut [4, 0, 0, 0]).0, 4);
    drop(load);

    // The first access is a store, in part of the packet.
    let mut space = self::space();
    let store = Body::new(STORE, false);
    let mut packet = [1, 2, 3, 4, 5, 6, 7, 8];
    access(&mut space, &store, i64::from(L2) + 2, &mut packet);
    assert_eq!((packet, space.l2_read()), ([1, 2, 5, 0, 0, 0, 7, 8], false));
}

#[test]
fn the_packet_appears_in_l1_under_the_first_access_wherever_that_is() {
    const L1: u32 = 0x1000_4000;
    let in_alias = i64::from(L1 - 0x1000_0000 + L1_ALIAS);
    for first in [i64::from(L1), in_alias] {
        let mut space = Space::new().expect("a space");
        let windows = Region::new(2 * PAGE as usize).expect("a region");
        // The alias contains mappings made before it, and those made after it.
        if first == in_alias {
            space.set_l1_alias(0x1000_0000, 0x4_0000).expect("an alias");
        }
        space.map_packet_in(&windows, (L1, 0), (L2, PAGE)).expect("mapped");
        if first != in_alias {
            space.set_l1_alias(0x1000_0000, 0x4_0000).expect("an alias");
        }
        let load = Body::new(LOAD, false);
        let (loaded, _) = access(&mut space, &load, first, &mut [1, 0, 0, 0]);
        assert_eq!((loaded, space.l2_read()), (1, false));
        let mut in_window = [0; 4];
        access(&mut space, &load, L2.into(), &mut [2, 0, 0, 0]);
        windows.read(0, &mut in_window).expect("inside");
        assert_eq!(in_window, [2, 0, 0, 0], "it is copied before");
        drop(load);
        // Both addresses are open for later accesses.
        for place in [in_alias, L1.into()] {
            let store = Body::new(STORE, false);
            let mut packet = [3, 0, 0, 0];
            let (_, state) = access(&mut space, &store, place, &mut packet);
            windows.read(0, &mut in_window).expect("inside");
            assert_eq!((state.exit, in_window, packet), (ExitReason::Returned as u32, [5, 0, 0, 0], [3, 0, 0, 0]));
        }
        // Without a packet the window stays closed, and there is nothing behind it.
        let body = Body::new(LOAD, false);
        assert_eq!(fault(&mut space, &body, i64::from(L1) + 0x1000), expected(Cause::LoadAccess, L1 + 0x1000));
    }
}

/// Runs `body` under a watchdog with a limit of a millisecond.
fn watched<R>(watchdog: &Watchdog, state: &mut State, body: impl FnOnce() -> R) -> R {
    let mut space = space();
    let (layout, _) = space.parts();
    (state.signals.layout, state.signals.lookup, state.limits.time) = (layout, lookup, 1_000_000);
    // SAFETY: the state is borrowed for the time of the call, and bodies are looked up.
    let _guard = unsafe { TrapGuard::new(watchdog.watch(), state) };
    // SAFETY: the guard refers to the state.
    unsafe { watchdog.watch().start_task(state) };
    body()
}

/// With a monitor, if this process may have one, and without.
fn watchdogs() -> impl Iterator<Item = Watchdog> {
    let monitors = Monitor::get().is_some();
    if !monitors {
        eprintln!("no real-time priority (needs root or CAP_SYS_NICE): only watchdogs without the monitor are tested");
    }
    let make = |monitor| Watchdog::with(monitor).expect("a watchdog");
    [Monitor::get(), None].into_iter().skip(usize::from(!monitors)).map(make)
}

#[test]
fn a_body_that_does_not_end_is_ended() {
    for watchdog in watchdogs() {
        let body = Body::new(SPIN, false);
        for _ in 0..3 {
            let mut state = State::new(0);
            assert_eq!(watched(&watchdog, &mut state, || body.call(null_mut(), 0)), u32::MAX);
            assert_eq!((state.exit, state.fault()), (ExitReason::Faulted as u32, expected(Cause::Watchdog, 0)));
        }
    }
}

#[test]
fn a_called_function_is_asked_to_end() {
    for watchdog in watchdogs() {
        let mut state = State::new(0);
        let wanted = &raw const state.request;
        watched(&watchdog, &mut state, || {
            // SAFETY: the state lives until after the call; the flag is atomic.
            while !unsafe { &*wanted }.ends() {
                std::hint::spin_loop();
            }
        });
        assert_eq!(state.exit, ExitReason::Returned as u32);
        // The next task is not ended for the one that was too long.
        watched(&watchdog, &mut state, || ());
        assert!(!state.request.ends());
    }
}

#[test]
fn threads_with_short_tasks_are_not_interrupted() {
    let Some(monitor) = Monitor::get() else {
        return eprintln!("skipped: no real-time priority (needs root or CAP_SYS_NICE)");
    };
    // Returns the longest task of a while.
    let tasks_for_a_while = || {
        let watchdog = Watchdog::with(Some(monitor)).expect("a watchdog");
        let (begun, mut state, mut longest) = (Instant::now(), State::new(0), Duration::ZERO);
        while begun.elapsed() < Duration::from_millis(20) {
            let task = Instant::now();
            watched(&watchdog, &mut state, || ());
            longest = longest.max(task.elapsed());
        }
        let all_are_short = longest < Duration::from_nanos(CHECK_PERIOD.unsigned_abs()) / 2;
        assert!(!all_are_short || watchdog.watch().period.load(Relaxed) == 0, "the longest task took {longest:?}");
        all_are_short
    };
    // A task during which the thread is preempted is not short.
    let begun = Instant::now();
    while !tasks_for_a_while() {
        assert!(begun.elapsed() < Duration::from_secs(60), "for a minute the thread was always kept from running");
    }
}

#[test]
fn the_task_after_one_that_was_ended_is_interrupted_only_without_a_core_for_the_monitor() {
    // In a process of its own, so that there is such a core.
    if !is_alone("the_task_after_one_that_was_ended_is_interrupted_only_without_a_core_for_the_monitor") {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for watchdog in watchdogs() {
        let (monitored, mut state) = (watchdog.watch().monitor.is_some(), State::new(0));
        let body = Body::new(SPIN, false);
        for _ in 0..3 {
            watched(&watchdog, &mut state, || body.call(null_mut(), 0));
            assert_eq!(
                watchdog.watch().recheck_next.load(Relaxed),
                !(monitored && cores > 1),
                "monitored: {monitored}"
            );
        }
    }
}

#[test]
fn the_monitor_sleeps_and_is_woken() {
    if !is_alone("the_monitor_sleeps_and_is_woken") {
        return;
    }
    let Some(monitor) = Monitor::get() else {
        return eprintln!("skipped: no real-time priority (needs root or CAP_SYS_NICE)");
    };
    // The monitor checks another thread at other times.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let _watchdog = Watchdog::with(Some(monitor)).expect("a watchdog");
        ended.recv().expect_err("nothing is sent");
    });
    let (watchdog, body) = (Watchdog::with(Some(monitor)).expect("a watchdog"), Body::new(SPIN, false));
    for _ in 0..2 {
        let mut state = State::new(0);
        assert_eq!(watched(&watchdog, &mut state, || body.call(null_mut(), 0)), u32::MAX);
        assert!(watchdog.watch().is_checked.load(Relaxed));
        let begun = Instant::now();
        while watchdog.watch().is_checked.load(Relaxed) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the monitor has looked at nothing for a minute");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    drop(end);
    other.join().expect("it ends");
}

/// Runs `body` on a thread of its own, on this core.
fn on_core<R: Send + 'static>(core: usize, body: impl FnOnce() -> R + Send + 'static) -> std::thread::JoinHandle<R> {
    std::thread::spawn(move || {
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).expect("a core");
        body()
    })
}

/// Two cores, or one if there is only one. The process may use no others from now on, so none is left for a monitor.
fn only_two_cores() -> [usize; 2] {
    let cores = CpuSet::MAX_CPU;
    let may = sched_getaffinity(None).expect("there are some");
    let first = (0..cores).find(|&core| may.is_set(core)).expect("there is one");
    let last = (first + 1..cores).find(|&core| may.is_set(core)).unwrap_or(first);
    let mut both = CpuSet::new();
    [first, last].into_iter().for_each(|core| both.set(core));
    sched_setaffinity(Some(rustix::process::getpid()), &both).expect("two cores");
    [first, last]
}

#[test]
fn a_thread_between_two_tasks_ends_those_of_others() {
    // In a process of its own: it takes cores from all threads of the process.
    if !is_alone("a_thread_between_two_tasks_ends_those_of_others") {
        return;
    }
    let [first, last] = only_two_cores();
    let monitor = Monitor::inactive();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let looks = move || {
        let watchdog = Watchdog::with(Some(monitor)).expect("a watchdog");
        while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            assert!(watchdog.poll_peers() > 0);
            std::thread::yield_now();
        }
    };
    let other = on_core(first, looks);
    let runs = on_core(last, move || {
        let (watchdog, body) = (Watchdog::with(Some(monitor)).expect("a watchdog"), Body::new(SPIN, false));
        let may_relax = || {
            watchdog.poll_peers();
            monitor.may_relax()
        };
        if first != last {
            while !may_relax() {
                std::thread::yield_now();
            }
        }
        let mut state = State::new(0);
        assert_eq!(watched(&watchdog, &mut state, || body.call(null_mut(), 0)), u32::MAX);
        assert_eq!(state.fault(), expected(Cause::Watchdog, 0));
        // The other thread may be about to check.
        let begun = Instant::now();
        while may_relax() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the next task may be alike");
        }
    });
    runs.join().expect("it is ended");
    drop(end);
    other.join().expect("it ends");
}

#[test]
fn threads_that_share_a_core_or_do_not_poll_are_not_left_to_each_other() {
    if !is_alone("threads_that_share_a_core_or_do_not_poll_are_not_left_to_each_other") {
        return;
    }
    let [first, last] = only_two_cores();
    // The first thread polls; the other one polls too, with or without pauses, or does not.
    let may_relax = move |[one, other]: [usize; 2], polls_and_pauses: Option<bool>, limit: Duration| {
        let monitor = Monitor::inactive();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waits = on_core(other, move || {
            Watchdog::with(Some(monitor)).map(|watchdog| {
                let begun = Instant::now();
                let mut left = false;
                while !left && begun.elapsed() < limit {
                    if let Some(pauses) = polls_and_pauses {
                        watchdog.poll_peers();
                        if pauses {
                            watchdog.stop_polling();
                        }
                    }
                    left = monitor.may_relax();
                    std::thread::yield_now();
                }
                drop(end);
                left
            })
        });
        let looks = on_core(one, move || {
            Watchdog::with(Some(monitor)).map(|watchdog| {
                while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    watchdog.poll_peers();
                    std::thread::yield_now();
                }
            })
        });
        looks.join().expect("it ends").expect("a watchdog");
        waits.join().expect("it ends").expect("a watchdog")
    };
    let a_while = Duration::from_millis(50);
    assert!(!may_relax([first, first], Some(false), a_while));
    assert!(!may_relax([first, last], None, a_while));
    assert!(!may_relax([first, last], Some(true), a_while), "it sleeps");
    // Each thread may be preempted.
    assert!(first == last || may_relax([first, last], Some(false), Duration::from_secs(60)));
}

#[test]
fn a_thread_has_one_watchdog_at_a_time() {
    let first = Watchdog::new().expect("a watchdog");
    assert!(matches!(Watchdog::new(), Err(TrapError::Watched)));
    std::thread::spawn(|| Watchdog::new().map(drop)).join().expect("no panic").expect("another thread's");
    drop(first);
    assert!(Watchdog::new().is_ok());
}

const CHILD: &str = "TRAP_TEST_CHILD";

/// Runs the test of this name again in a process of its own, where `CHILD` is set.
fn in_child(test: &str) -> std::process::ExitStatus {
    let exe = std::env::current_exe().expect("this program");
    let arguments = ["--exact", test, "--test-threads=1"];
    let output = Command::new(exe).args(arguments).env(CHILD, "1").output().expect("runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    output.status
}

/// Whether this process runs only the test of this name. If not, runs it in another process.
fn is_alone(test: &str) -> bool {
    let is_alone = std::env::var_os(CHILD).is_some();
    if !is_alone {
        let status = in_child(&format!("trap::tests::{test}"));
        assert!(status.success(), "{status}");
    }
    is_alone
}

#[test]
fn faults_of_others_have_their_old_effect() {
    if std::env::var_os(CHILD).is_none() {
        let status = in_child("trap::tests::faults_of_others_have_their_old_effect");
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        return;
    }
    // A guest address, but not in a body.
    let mut space = space();
    let body = Body::new(LOAD, false);
    BODY.set((0, false));
    access(&mut space, &body, 0x2000_0000, &mut []);
}

#[test]
fn a_timer_that_cannot_be_had_is_an_error() {
    if !is_alone("a_timer_that_cannot_be_had_is_an_error") {
        return;
    }
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: lowers a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const none) }, 0);
    let refused = Watchdog::new().expect_err("no timer");
    assert_eq!(refused, TrapError::Timer { errno: libc::EAGAIN });
    assert!(refused.to_string().contains("ulimit -i"), "{refused}");
}

/// Sends SIGSEGV to this process, and waits until a thread has received it.
fn send() {
    // SAFETY: the installed handler accesses no memory of its own.
    assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) }, 0);
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn a_fault_that_was_sent_ends_the_process() {
    if std::env::var_os(CHILD).is_none() {
        let status = in_child("trap::tests::a_fault_that_was_sent_ends_the_process");
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
        return;
    }
    install().expect("handlers");
    send();
}

#[test]
fn the_handlers_stay_where_sent_signals_are_ignored() {
    if !is_alone("the_handlers_stay_where_sent_signals_are_ignored") {
        return;
    }
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_IGN) };
    install().expect("handlers");
    send();
    let (mut space, body) = (space(), Body::new(LOAD, false));
    assert_eq!(fault(&mut space, &body, 0x2000_0000), expected(Cause::LoadAccess, 0x2000_0000));
}
