//! With exact checks what is for reading stays as it is, though it shares a page with what is not: that page is mapped for writing.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, A3, Assembly, S0};
use guest::{CODE, OWN, Way, task, translate};
use hpu_vm::jit::{Executor, Limits, Slot, Task};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Checks, Exit, NoDevice, Op, RegionKind};
use spin_abi::fault::Cause;
use spin_abi::map::PAGE;

/// From where on the data are for writing.
const WRITABLE: u32 = PAGE + 0x100;

/// How a handler ends, and which of the data's first words it has changed, that loads a word at `at` of them and stores two words from there on.
fn outcome(executor: &Executor, way: Way, at: u32) -> (Exit, Vec<u32>) {
    let program = Assembly::new().li(S0, OWN.data + at).li(A2, 0x4141_4141).imm(Op::Lw, A3, S0, 0);
    let code = program.store(Op::Sw, A2, S0, 4).store(Op::Sw, A2, S0, 0).ret().code();
    let data = Region::new(2 * PAGE as usize).expect("memory");
    let mut space = Space::new().expect("a space");
    let mut map = |from: u32, len: u32, access| {
        space.map(RegionKind::Data, OWN.data + from, &data, from, len, access).expect("mapped");
    };
    map(0, WRITABLE - 0x80, Access::Read);
    map(WRITABLE, 0x100, Access::Write);
    let bytes = &code.segments()[0].bytes;
    let program = Region::around(CODE, bytes).expect("memory");
    space.map(RegionKind::Code, CODE, &program, 0, bytes.len() as u32, Access::Read).expect("mapped");
    let mut slot = Slot::new(0, space);
    slot.view().set_checks(way.checks);
    let translation = way.options.map(|options| translate(&code, &[], options));
    let limits = Limits { time: None, instructions: way.counts().then_some(100) };
    let task = Task { limits, ..task(OWN, &code, translation.as_ref()) };
    let exit = executor.run(&mut slot, &mut [], &task, &mut NoDevice);
    let mut bytes = vec![0; 2 * PAGE as usize];
    data.read(0, &mut bytes).expect("all of it");
    let words = bytes.chunks(4).zip((0..).step_by(4)).filter(|(word, _)| *word != [0; 4]).map(|(_, at)| at).collect();
    (exit, words)
}

#[test]
fn bytes_for_reading_stay_as_they_are_next_to_others() {
    let executor = Executor::new().expect("a timer");
    let pages = [0, 0x10, PAGE - 8, PAGE - 4, PAGE, PAGE + 0x20, WRITABLE - 0x88];
    for at in pages.into_iter().chain([WRITABLE, WRITABLE + 0xf8]) {
        let expected = outcome(&executor, Way::interpreter(Checks::Exact), at);
        let refused = matches!(expected.0, Exit::Fault(fault) if fault.cause == Cause::StoreAccess);
        assert_eq!((refused, expected.1.is_empty()), (at < WRITABLE, at < WRITABLE), "{at:#x}");
        for way in Way::translated(Checks::Exact) {
            assert_eq!(outcome(&executor, way, at), expected, "{at:#x}, {}", way.name());
        }
    }
}
