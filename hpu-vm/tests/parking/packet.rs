//! The packet in L1 of a task that first looks at it after it was parked.

use hpu_vm::jit::{Atomics, Executor, Options, Slot};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Exit, Op, Reg, RegionKind};
use spin_abi::map::{DRIVER_BASE, PAGE};
use spin_abi::regs::COMMAND_WAIT;

use crate::assembly::{A2, A3, A4, Assembly};
use crate::guest::{MACHINE, OWN, task, translate};
use crate::waits::Waits;

#[test]
fn what_was_written_in_l2_before_does_not_show_in_l1() {
    let packet = MACHINE.l1_packet_base(OWN.cluster, OWN.hpu);
    // Writes 5 to the packet in L2, waits, and writes down what it finds in L1.
    let program = Assembly::new().li(A2, OWN.l2_packet()).li(A3, DRIVER_BASE + COMMAND_WAIT).li(A4, 5);
    let program = program.store(Op::Sw, A4, A2, 0).store(Op::Sw, Reg::ZERO, A3, 0).li(A2, packet);
    let program = program.imm(Op::Lw, A4, A2, 0).li(A2, OWN.data).store(Op::Sw, A4, A2, 0).ret();
    let (executor, code) = (Executor::new().expect("a timer"), program.code());
    let options = [Atomics::Home, Atomics::Shared].map(|atomics| Some(Options { atomics, ..Options::default() }));
    for options in options.into_iter().chain([None]) {
        let translation = options.map(|options| translate(&code, &[], options));
        for waits in [0, 1, 3] {
            let (mut space, data) = (Space::new().expect("a space"), Region::new(8).expect("memory"));
            let windows = Region::new(2 * PAGE as usize).expect("memory");
            space.map_packet_in(&windows, (packet, 0), (OWN.l2_packet(), PAGE)).expect("mapped");
            space.map(RegionKind::Data, OWN.data, &data, 0, 8, Access::Write).expect("mapped");
            let (mut slot, mut device, mut frame) = (Slot::new(0, space), Waits::new(waits), [1, 2, 3, 4]);
            let task = task(OWN, &code, translation.as_ref());
            let mut exit = executor.run(&mut slot, &mut frame, &task, &mut device);
            let mut parked = 0;
            while exit == Exit::Parked && parked <= waits {
                parked += 1;
                assert_eq!(frame, [5, 0, 0, 0]);
                exit = executor.resume(&mut slot, &mut frame, &task, &mut device);
            }
            let mut found = [0; 4];
            data.read(0, &mut found).expect("inside");
            assert_eq!(
                (exit, parked, found, frame),
                (Exit::Returned, waits, [1, 2, 3, 4], [5, 0, 0, 0]),
                "{options:?}"
            );
        }
    }
}
