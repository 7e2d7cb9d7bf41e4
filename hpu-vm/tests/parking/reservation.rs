//! A word that was reserved before its task was parked.

use hpu_vm::jit::{Atomics, Executor, Options};
use hpu_vm::{Exit, Op, Reg};
use spin_abi::map::DRIVER_BASE;
use spin_abi::regs::COMMAND_WAIT;

use crate::assembly::{A2, A3, A4, Assembly};
use crate::guest::{Guest, OWN, task, translate};
use crate::waits::Waits;

#[test]
fn who_was_parked_has_lost_its_reservation() {
    let program = Assembly::new().li(A2, OWN.data).li(A3, DRIVER_BASE + COMMAND_WAIT).li(A4, 5);
    let program = program.op(Op::LrW, Reg::ZERO, A2, Reg::ZERO).store(Op::Sw, Reg::ZERO, A3, 0);
    let program = program.op(Op::ScW, Reg::A1, A2, A4).store(Op::Sw, Reg::A1, A2, 4).ret();
    let (executor, code) = (Executor::new().expect("a timer"), program.code());
    let options = [Atomics::Home, Atomics::Shared].map(|atomics| Some(Options { atomics, ..Options::default() }));
    for options in options.into_iter().chain([None]) {
        let translation = options.map(|options| translate(&code, &[], options));
        for waits in [0, 1, 4] {
            let (mut guest, mut device) = (Guest::new(OWN, &code, 0), Waits::new(waits));
            let task = task(OWN, &code, translation.as_ref());
            let (mut exit, mut parked) = (executor.run(&mut guest.slot, &mut [], &task, &mut device), 0);
            while exit == Exit::Parked && parked <= waits {
                parked += 1;
                exit = executor.resume(&mut guest.slot, &mut [], &task, &mut device);
            }
            let (stored, failed) = (guest.word(OWN.data), guest.word(OWN.data + 4));
            let expected = if waits == 0 { (5, 0) } else { (0, 1) };
            assert_eq!((exit, parked), (Exit::Returned, waits), "{options:?}");
            assert_eq!((stored, failed), expected, "{options:?}, {waits} waits");
        }
    }
}
