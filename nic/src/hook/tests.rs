//! Programs that the kernel loads and runs. They need root.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapHandle, MapType};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::support::{EXIT, MOVE_0, instruction};
use super::{ArrayMap, Feature, HookTable, LoadError, LoadOptions, Program, Refusal, SocketMap, Support};
use crate::error::NicError;

const XDP_TX: u32 = 3;
/// `r0 = XDP_TX`.
const MOVE_TX: [u8; 8] = instruction(0xb7, 0, 0, 0, 3);
const OPTIONS: LoadOptions<'_> = LoadOptions { name: "spin_test", full_log: false };

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        spin_testing::skip("needs root");
    }
    root
}

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

fn refusal(instructions: &[[u8; 8]], options: LoadOptions<'_>) -> Box<Refusal> {
    match Program::load(instructions, &[], options) {
        Err(LoadError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Exchanges the MAC addresses.
fn swap() -> Vec<[u8; 8]> {
    let mut code = vec![
        // r2 = context.data; r3 = context.data_end; r4 = r2 + 14; if r4 > r3 goto the end
        instruction(0x61, 2, 1, 0, 0),
        instruction(0x61, 3, 1, 4, 0),
        instruction(0xbf, 4, 2, 0, 0),
        instruction(0x07, 4, 0, 0, 14),
        instruction(0x2d, 4, 3, 12, 0),
    ];
    for at in [0, 2, 4] {
        code.push(instruction(0x69, 4, 2, at, 0));
        code.push(instruction(0x69, 5, 2, at + 6, 0));
        code.push(instruction(0x6b, 2, 5, at, 0));
        code.push(instruction(0x6b, 2, 4, at + 6, 0));
    }
    code.extend([MOVE_TX, EXIT]);
    code
}

#[test]
fn a_program_runs_and_returns_its_action_and_the_frame() {
    if !root() {
        return;
    }
    let program = Program::load(&[MOVE_TX, EXIT], &[], OPTIONS).expect("it loads");
    for len in [14, 64, 1514, 3520] {
        let run = program.test_run(&frame(len), 1000).expect("it runs");
        assert_eq!((run.action, &run.frame), (XDP_TX, &frame(len)));
        assert!(run.duration < Duration::from_millis(1), "{:?}", run.duration);
    }
    let info = program.info().expect("a description");
    assert_eq!((info.verified_instructions, program.processed(), info.instructions), (2, Some(2), 2));
    assert!(info.id > 0 && program.load_time() > Duration::ZERO);
}

#[test]
fn a_run_takes_frames_of_a_length_that_the_kernel_accepts() {
    if !root() {
        return;
    }
    let program = Program::load(&[MOVE_TX, EXIT], &[], OPTIONS).expect("it loads");
    let error = program.test_run(&frame(13), 1).expect_err("too short");
    assert_eq!(error.to_string(), "the frame of a test run is 13 B: give 14 to 3520 B");
    // The length of what the program sees.
    let code = [instruction(0x61, 0, 1, 4, 0), instruction(0x61, 1, 1, 0, 0), instruction(0x1f, 0, 1, 0, 0), EXIT];
    let length = Program::load(&code, &[], OPTIONS).expect("it loads");
    assert_eq!(length.test_run(&frame(3520), 1).expect("it runs").action, 3520);
    let error = length.test_run(&frame(3521), 1).expect_err("too long");
    assert_eq!(error.to_string(), "the frame of a test run is 3521 B: give 14 to 3520 B");
    assert!(matches!(program.test_run(&frame(64), 0), Err(NicError::Config { .. })));
    assert!(matches!(program.test_run(&frame(64), 1 << 31), Err(NicError::Config { .. })));
}

#[test]
fn a_program_changes_the_frame_in_place() {
    if !root() {
        return;
    }
    let program = Program::load(&swap(), &[], OPTIONS).expect("it loads");
    let run = program.test_run(&frame(60), 1).expect("it runs");
    let mut expected = frame(60);
    expected[..12].rotate_left(6);
    assert_eq!((run.action, run.frame), (XDP_TX, expected));
    // The second run begins with the frame of the first.
    assert_eq!(program.test_run(&frame(60), 2).expect("it runs").frame, frame(60));
}

#[test]
fn a_frame_may_grow() {
    if !root() {
        return;
    }
    // bpf_xdp_adjust_tail(context, 200)
    let code = [instruction(0xb7, 2, 0, 0, 200), instruction(0x85, 0, 0, 0, 65), MOVE_TX, EXIT];
    let program = Program::load(&code, &[], OPTIONS).expect("it loads");
    let run = program.test_run(&frame(100), 1).expect("it runs");
    let mut expected = frame(100);
    expected.resize(300, 0);
    assert_eq!(run.frame, expected);
}

#[test]
fn programs_use_values_of_maps_by_index_and_offset() {
    if !root() {
        return;
    }
    let constants = ArrayMap::read_only("constants", &[7, 0, 0, 0, 9, 0, 0, 0, 1]).expect("a map");
    let memory = ArrayMap::new("memory", 4096).expect("a map");
    let code = [
        // r1 = map 0 + 4; r2 = map 1 + 4088; *(u32 *)(r2 + 0) = *(u32 *)(r1 + 0)
        instruction(0x18, 1, 6, 0, 0),
        instruction(0, 0, 0, 0, 4),
        instruction(0x18, 2, 6, 0, 1),
        instruction(0, 0, 0, 0, 4088),
        instruction(0x61, 3, 1, 0, 0),
        instruction(0x63, 2, 3, 0, 0),
        MOVE_TX,
        EXIT,
    ];
    let program = Program::load(&code, &[constants.as_fd(), memory.as_fd()], OPTIONS).expect("it loads");
    program.test_run(&frame(64), 1).expect("it runs");
    let mut expected = vec![0; 4096];
    expected[4088] = 9;
    assert_eq!(memory.read().expect("readable"), expected);
    // The program sees what user space writes.
    let mut changed = constants.read().expect("readable");
    assert_eq!(changed, [7, 0, 0, 0, 9, 0, 0, 0, 1]);
    changed[4] = 10;
    constants.write(&changed).expect("writable");
    program.test_run(&frame(64), 1).expect("it runs");
    assert_eq!(memory.read().expect("readable")[4088], 10);
    // r1 = map 0; *(u8 *)(r1 + 0) = 1: a program may not write constants.
    let code = [instruction(0x18, 1, 6, 0, 0), [0; 8], instruction(0x72, 1, 0, 0, 1), MOVE_TX, EXIT];
    assert!(Program::load(&code, &[memory.as_fd()], OPTIONS).is_ok());
    match Program::load(&code, &[constants.as_fd()], OPTIONS) {
        Err(LoadError::Refused(refusal)) => assert_eq!(refusal.errno, libc::EACCES, "{refusal:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_frozen_map_is_not_written() {
    if !root() {
        return;
    }
    let mut map = ArrayMap::read_only("frozen.map_1", &[1, 2, 3]).expect("a map");
    map.freeze().expect("it freezes");
    let error = map.write(&[3, 2, 1]).expect_err("frozen").to_string();
    assert!(error.contains("frozen.map_1, which is frozen"), "{error}");
    assert_eq!((map.read().expect("readable"), map.value_size(), map.name()), (vec![1, 2, 3], 3, "frozen.map_1"));
    let error = map.write(&[3, 2]).expect_err("two bytes for three").to_string();
    assert!(error.contains("2 B for frozen.map_1 of 3 B"), "{error}");
}

#[test]
fn maps_have_valid_names_and_sizes() {
    let result = |name, size| ArrayMap::new(name, size).map(drop);
    for name in ["", "sixteen_letters_", "a-b", "a b", "a\0"] {
        assert!(matches!(result(name, 8), Err(NicError::Config { what: "the name of a map", .. })), "{name}");
    }
    assert!(matches!(result("map", 0), Err(NicError::Config { what: "the size of a map's value", .. })));
}

#[test]
fn a_refusal_has_the_verifiers_reason() {
    if !root() {
        return;
    }
    // r0 = r3; exit
    let refusal = refusal(&[instruction(0xbf, 0, 3, 0, 0), EXIT], OPTIONS);
    assert_eq!((&*refusal.message, &*refusal.reason), ("R3 !read_ok", "RN !read_ok"));
    assert_eq!((refusal.errno, refusal.processed, &refusal.log), (libc::EACCES, Some(1), &None));
    let error = LoadError::Refused(refusal).to_string();
    assert_eq!(error, "the kernel refused program spin_test: R3 !read_ok (errno 13)");
}

#[test]
fn reasons_of_one_kind_are_equal() {
    if !root() {
        return;
    }
    let reason = |at| refusal(&[instruction(0x7a, 10, 0, at, 1), MOVE_TX, EXIT], OPTIONS).reason;
    assert_eq!(reason(8), reason(-520));
    let endless = refusal(&[MOVE_0, instruction(0x05, 0, 0, -1, 0), EXIT], OPTIONS);
    assert_eq!(endless.reason, "unreachable insn N");
    let endless = [MOVE_0, instruction(0x15, 0, 0, 1, 1), instruction(0x05, 0, 0, -2, 0), EXIT];
    assert_eq!(refusal(&endless, OPTIONS).reason, "infinite loop detected at insn N");
    // 4.3 G iterations: more than the verifier follows.
    let long = [MOVE_0, instruction(0x07, 0, 0, 0, 1), instruction(0x55, 0, 0, -2, -1), MOVE_TX, EXIT];
    let long = refusal(&long, OPTIONS);
    assert_eq!(long.reason, "BPF program is too large. Processed N insn");
    assert_eq!((long.errno, long.processed), (libc::E2BIG, Some(1_000_001)));
}

#[test]
fn the_full_log_keeps_its_end() {
    if !root() {
        return;
    }
    let options = LoadOptions { full_log: true, ..OPTIONS };
    // r4 = 0; 40,000 iterations; r0 = r3
    let code = [
        instruction(0xb7, 4, 0, 0, 0),
        instruction(0x07, 4, 0, 0, 1),
        instruction(0x55, 4, 0, -2, 40_000),
        instruction(0xbf, 0, 3, 0, 0),
        EXIT,
    ];
    let refusal = refusal(&code, options);
    let log = refusal.log.as_deref().expect("requested");
    assert_eq!((&*refusal.message, refusal.errno), ("R3 !read_ok", libc::EACCES));
    assert!(log.len() > 1 << 19 && log.len() < 1 << 20, "{}", log.len());
    assert!(log.contains("3: (bf) r0 = r3\nR3 !read_ok\n"), "{}", &log[log.len() - 1000..]);
}

#[test]
fn malformed_programs_do_not_reach_the_kernel() {
    let error = |code: &[[u8; 8]], name| match Program::load(code, &[], LoadOptions { name, ..OPTIONS }) {
        Err(LoadError::Malformed(error)) => error,
        other => panic!("{other:?}"),
    };
    for (kind, expected) in [
        (1, "instruction 1 names a map by descriptor: use its index"),
        (2, "instruction 1 names a map by descriptor: use its index"),
        (5, "instruction 1 names map 3, but 0 were given"),
        (6, "instruction 1 names map 3, but 0 were given"),
    ] {
        assert_eq!(error(&[MOVE_0, instruction(0x18, 1, kind, 0, 3), [0; 8], EXIT], "map"), expected);
    }
    let module = instruction(0x85, 0, 2, 1, 5);
    assert!(error(&[module, EXIT], "module").contains("instruction 0 calls a function of a kernel module"));
    assert!(error(&[MOVE_0, EXIT], "sixteen_letters_").contains("1 to 15 letters"));
    // The second half of an immediate is not an instruction.
    if root() {
        let halves = [instruction(0x18, 1, 0, 0, 3), instruction(0x18, 1, 1, 0, 3), MOVE_0, EXIT];
        assert_eq!(refusal(&halves, OPTIONS).errno, libc::EINVAL);
        let empty = refusal(&[], OPTIONS);
        assert_eq!((empty.errno, empty.processed), (libc::E2BIG, None));
    }
}

#[test]
fn probing_finds_the_privileges_that_are_missing() {
    if !root() {
        return;
    }
    // libbpf keeps what it found about the kernel when it was first asked, which needs privileges.
    let all = Support::probe();
    assert!(!all.missing().iter().any(|missing| missing.contains("permission")), "{:?}", all.missing());
    let with = |kept: CapabilitySet| {
        let probe = move || {
            let mut sets = capabilities(None).expect("capabilities");
            sets.effective = kept;
            set_capabilities(None, sets).expect("fewer capabilities");
            let load = Program::load(&[MOVE_TX, EXIT], &[], OPTIONS).map(drop);
            let map = ArrayMap::new("map", 8).map(drop);
            (Support::probe(), load, map)
        };
        thread::spawn(probe).join().expect("the thread ends")
    };
    let (support, load, map) = with(CapabilitySet::empty());
    assert_eq!((support.missing().len(), support.has(Feature::Load)), (1, false));
    assert!(support.missing()[0].contains("CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"));
    assert!(matches!(load, Err(LoadError::Privileges)), "{load:?}");
    assert!(matches!(map, Err(NicError::Privileges { .. })), "{map:?}");
    let (support, load, map) = with(CapabilitySet::BPF | CapabilitySet::NET_ADMIN);
    assert_eq!((support.has(Feature::Load), support.has(Feature::PointerArithmetic)), (true, false));
    assert!(load.is_ok() && map.is_ok());
    assert!(!support.is_complete() && all.has(Feature::PointerArithmetic));
}

#[test]
fn this_kernel_has_everything_that_its_version_has() {
    if !root() {
        return;
    }
    let support = Support::probe();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("readable");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    for (feature, since) in [
        (Feature::MappableArrays, (5, 5)),
        (Feature::MapIndices, (5, 14)),
        (Feature::MapValues, (5, 14)),
        (Feature::InstructionsV4, (6, 6)),
        (Feature::MayGoto, (6, 9)),
    ] {
        assert!(version < since || support.has(feature), "Linux {release}: {:?}", support.missing());
    }
    assert!(version < (6, 9) || support.is_complete());
}

#[test]
fn a_table_calls_the_program_at_an_index() {
    if !root() {
        return;
    }
    let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
    let map = MapHandle::create(MapType::ProgArray, Some("table"), 4, 4, 2, &options).expect("a map");
    let table = HookTable::new(map.as_fd().try_clone_to_owned().expect("a descriptor"));
    // r2 = map 0; r3 = 1; bpf_tail_call(context, map 0, 1); return 0
    let code = [
        instruction(0x18, 2, 5, 0, 0),
        [0; 8],
        instruction(0xb7, 3, 0, 0, 1),
        instruction(0x85, 0, 0, 0, 12),
        MOVE_0,
        EXIT,
    ];
    let caller = Program::load(&code, &[map.as_fd()], OPTIONS).expect("it loads");
    let called = Program::load(&[MOVE_TX, EXIT], &[], OPTIONS).expect("it loads");
    let action = || caller.test_run(&frame(64), 1).expect("it runs").action;
    assert_eq!(action(), 0);
    table.set(1, called.as_fd()).expect("set");
    drop(called);
    assert_eq!(action(), XDP_TX);
    let other = Program::load(&[instruction(0xb7, 0, 0, 0, 1), EXIT], &[], OPTIONS).expect("it loads");
    table.set(1, other.as_fd()).expect("replaced");
    assert_eq!(action(), 1);
    table.clear(1).expect("removed");
    assert_eq!(action(), 0);
    table.clear(1).expect("nothing to remove");
    table.set(2, other.as_fd()).expect_err("beyond the map");
    table.clear(2).expect_err("beyond the map");
    table.set(0, map.as_fd()).expect_err("no program");
}

#[test]
fn descriptors_of_other_maps_are_refused() {
    if !root() {
        return;
    }
    let array = ArrayMap::new("array", 4096).expect("a map");
    let fd = || array.as_fd().try_clone_to_owned().expect("a descriptor");
    let program = Program::load(&[MOVE_TX, EXIT], &[], OPTIONS).expect("it loads");
    let error = HookTable::new(fd()).set(0, program.as_fd()).expect_err("an array").to_string();
    assert!(error.contains("the map is not one of programs"), "{error}");
    HookTable::new(fd()).clear(0).expect_err("an array");
    assert!(matches!(SocketMap::new(fd()), Err(NicError::Config { what: "the map of sockets", .. })));
    SocketMap::new(program.as_fd().try_clone_to_owned().expect("a descriptor")).expect_err("a program");
    let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
    let sockets = MapHandle::create(MapType::Xskmap, Some("sockets"), 4, 4, 2, &options).expect("a map");
    SocketMap::new(sockets.as_fd().try_clone_to_owned().expect("a descriptor")).expect("sockets");
}

#[test]
fn a_program_of_another_process_runs() {
    if !root() {
        return;
    }
    let program = Program::load(&[MOVE_TX, EXIT], &[], OPTIONS).expect("it loads");
    let received = Program::from_fd(program.as_fd().try_clone_to_owned().expect("a descriptor"));
    drop(program);
    assert_eq!(received.test_run(&frame(64), 1).expect("it runs").action, XDP_TX);
}
