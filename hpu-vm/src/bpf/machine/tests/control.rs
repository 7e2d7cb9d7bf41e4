use super::{LIMIT, R0, R1, R2, R3, R6, fault, run, run_with};
use crate::bpf::assembler::Assembler;
use crate::bpf::insn::{Alu, Condition, Helper, Insn, Register, Size};
use crate::bpf::machine::{Area, Fault, MAX_LOOPS, Machine, MapMemory};

#[test]
fn registers_are_written_before_they_are_read() {
    for number in [0, 2, 3, 4, 5, 6, 7, 8, 9] {
        let refused = fault(|program| program.mov64(R0, Register::new(number)));
        assert_eq!(refused, Fault::UnwrittenRegister(number.into()));
    }
    assert_eq!(fault(|program| program.alu64(Alu::Xor, R2, R2)), Fault::UnwrittenRegister(2));
    assert_eq!(fault(|_| ()), Fault::UnwrittenRegister(0));
    assert_eq!(fault(|program| program.mov64(R0, R1)), Fault::PointerOperand(Area::Context));
}

#[test]
fn errors_tell_the_instruction() {
    let error = run(|program| {
        program.mov64(R0, 0);
        program.load(Size::Word, R0, R2, 4);
    })
    .expect_err("refused");
    let insn = Insn::Load { size: Size::Word, to: R0, base: R2, offset: 4 };
    assert_eq!((error.index, error.insn, error.fault), (1, Some(insn), Fault::UnwrittenRegister(2)));
    assert!(error.to_string().ends_with("R2 was not written"), "{error}");
}

#[test]
fn the_action_is_the_lower_half() {
    let action = run(|program| {
        program.mov64(R0, 1);
        program.alu64(Alu::Lsh, R0, 32);
        program.alu64(Alu::Add, R0, 3);
    });
    assert_eq!(action, Ok(3));
}

#[test]
fn loops_and_far_jumps() {
    const BETWEEN: u32 = 40_000;
    let mut program = Assembler::default();
    let (start, end) = (program.label(), program.label());
    program.mov64(R0, 0);
    program.mov64(R6, 2);
    program.bind(start);
    program.branch32(Condition::Equal, R6, 0, end);
    for _ in 0..BETWEEN {
        program.alu32(Alu::Add, R0, 1);
    }
    program.alu64(Alu::Sub, R6, 1);
    program.jump(start);
    program.bind(end);
    program.push(Insn::Exit);
    let program = program.finish();
    let executed = 2 + 2 * u64::from(BETWEEN + 3) + 2;
    let mut frame = vec![];
    let mut machine = Machine::new(&mut frame, vec![]);
    assert_eq!(machine.run(&program, executed), Ok(2 * BETWEEN));
    let error = machine.run(&program, executed - 1).expect_err("too long");
    assert_eq!((error.insn, error.fault), (Some(Insn::Exit), Fault::Limit));
}

#[test]
fn a_program_ends_with_an_exit() {
    let mut frame = vec![];
    let mut machine = Machine::new(&mut frame, vec![]);
    let error = machine.run(&Assembler::default().finish(), LIMIT).expect_err("empty");
    assert_eq!((error.index, error.insn, error.fault), (0, None, Fault::NoInsn));
    let mut program = Assembler::default();
    let end = program.label();
    program.jump(end);
    program.push(Insn::Exit);
    program.bind(end);
    let error = machine.run(&program.finish(), LIMIT).expect_err("no exit");
    assert_eq!((error.index, error.fault), (1, Fault::NoInsn));
}

#[test]
fn may_goto_ends_loops() {
    let mut program = Assembler::default();
    let (start, end) = (program.label(), program.label());
    program.mov64(R0, 0);
    program.bind(start);
    program.push(Insn::MayGoto { to: end });
    program.alu32(Alu::Add, R0, 1);
    program.jump(start);
    program.bind(end);
    program.push(Insn::Exit);
    let program = program.finish();
    let mut frame = vec![];
    let mut machine = Machine::new(&mut frame, vec![]);
    for _ in 0..2 {
        assert_eq!(machine.run(&program, 3 * u64::from(MAX_LOOPS) + 3), Ok(MAX_LOOPS));
    }
    assert_eq!(machine.run(&program, LIMIT).expect_err("too long").fault, Fault::Limit);
}

#[test]
fn context_fields() {
    let mut frame: Vec<u8> = (0..20).collect();
    let field = |frame: &mut Vec<u8>, size, offset| {
        let mut program = Assembler::default();
        program.load(size, R0, R1, offset);
        program.push(Insn::Exit);
        let mut machine = Machine::new(frame, vec![]);
        machine.queue = 7;
        machine.run(&program.finish(), LIMIT).map_err(|error| error.fault)
    };
    assert_eq!(field(&mut frame, Size::Word, 16), Ok(7));
    assert_eq!(field(&mut frame, Size::Word, 0), Err(Fault::PointerOperand(Area::Frame)));
    assert_eq!(field(&mut frame, Size::Word, 4), Err(Fault::PointerOperand(Area::FrameEnd)));
    assert_eq!(field(&mut frame, Size::Word, 8), Err(Fault::PointerOperand(Area::Frame)));
    for (size, offset) in [(Size::Double, 0), (Size::Half, 16), (Size::Word, 2), (Size::Word, 20), (Size::Word, -4)] {
        let bytes = size.bytes();
        assert_eq!(field(&mut frame, size, offset), Err(Fault::ContextField { offset: offset.into(), bytes }));
    }
    let refused = fault(|program| {
        program.alu64(Alu::Add, R1, 4);
    });
    assert_eq!(refused, Fault::PointerOperand(Area::Context));
}

#[test]
fn calls_overwrite_arguments() {
    let mut program = Assembler::default();
    program.mov64(R2, 1);
    program.mov64(R6, 2);
    program.push(Insn::Call { helper: Helper::Processor });
    program.alu64(Alu::Add, R0, R6);
    program.push(Insn::Exit);
    let mut frame = vec![];
    let mut machine = Machine::new(&mut frame, vec![]);
    machine.processor = 5;
    assert_eq!(machine.run(&program.finish(), LIMIT), Ok(7));
    for number in 1..=5 {
        let register = Register::new(number);
        let refused = fault(|program| {
            program.mov64(register, 1);
            program.push(Insn::Call { helper: Helper::Processor });
            program.mov64(R0, register);
        });
        assert_eq!(refused, Fault::UnwrittenRegister(number.into()));
    }
}

#[test]
fn redirection_to_sockets() {
    let action = |map, key: i32, flags: i32| {
        let mut value = [0; 8];
        let maps = vec![MapMemory::Sockets(&[0, 3]), MapMemory::Value(&mut value)];
        run_with(&mut vec![], maps, |program| {
            program.push(Insn::Map { to: R1, map });
            program.mov64(R2, key);
            program.mov64(R3, flags);
            program.push(Insn::Call { helper: Helper::RedirectMap });
        })
        .map_err(|error| error.fault)
    };
    let invalid = Fault::Argument { helper: Helper::RedirectMap, register: 1 };
    assert_eq!(action(0, 3, 2), Ok(4));
    assert_eq!(action(0, 1, 2), Ok(2));
    assert_eq!(action(0, 1, 1), Ok(1));
    assert_eq!(action(0, 3, 4), Ok(0));
    assert_eq!(action(1, 3, 2), Err(invalid));
    assert_eq!(action(2, 3, 2), Err(Fault::NoMap(2)));
    let refused = fault(|program| {
        program.mov64(R2, 0);
        program.mov64(R3, 0);
        program.push(Insn::Call { helper: Helper::RedirectMap });
    });
    assert_eq!(refused, invalid);
    let refused = fault(|program| {
        program.mov64(R2, 0);
        program.push(Insn::Call { helper: Helper::RedirectMap });
    });
    assert_eq!(refused, Fault::UnwrittenRegister(3));
}

/// Calls `bpf_xdp_adjust_tail`; the context stays in R6.
fn adjust_tail(program: &mut Assembler, difference: i32) {
    program.mov64(R6, R1);
    program.mov64(R2, difference);
    program.push(Insn::Call { helper: Helper::AdjustTail });
}

#[test]
fn adjust_tail_changes_the_length() {
    const EINVAL: u32 = (-22_i32).cast_unsigned();
    for (difference, result, length) in [
        (0, 0, 20),
        (-6, 0, 14),
        (-7, EINVAL, 20),
        (-21, EINVAL, 20),
        (4, 0, 24),
        (5, EINVAL, 20),
        (i32::MIN, EINVAL, 20),
        (i32::MAX, EINVAL, 20),
    ] {
        let mut program = Assembler::default();
        adjust_tail(&mut program, difference);
        program.push(Insn::Exit);
        let mut frame = vec![0xff; 20];
        let mut machine = Machine::new(&mut frame, vec![]);
        machine.max_frame = 24;
        assert_eq!(machine.run(&program.finish(), LIMIT), Ok(result), "{difference}");
        let expected: Vec<u8> = (0..length).map(|at| if at < 20 { 0xff } else { 0 }).collect();
        assert_eq!(frame, expected, "{difference}");
    }
    let end = |build: fn(&mut Assembler)| run_with(&mut vec![1; 20], vec![], build).map_err(|error| error.fault);
    let length = end(|program| {
        adjust_tail(program, -4);
        program.load(Size::Word, R2, R6, 0);
        program.load(Size::Word, R0, R6, 4);
        program.alu64(Alu::Sub, R0, R2);
    });
    assert_eq!(length, Ok(16));
    let changed = end(|program| {
        program.mov64(R2, 0);
        program.mov64(R1, 0);
        program.push(Insn::Call { helper: Helper::AdjustTail });
    });
    assert_eq!(changed, Err(Fault::Argument { helper: Helper::AdjustTail, register: 1 }));
}

#[test]
fn adjust_tail_invalidates_frame_pointers() {
    let on_old_pointer = |difference, build: fn(&mut Assembler)| {
        let mut frame = vec![1; 20];
        run_with(&mut frame, vec![], |program| {
            program.load(Size::Word, Register::R9, R1, 0);
            adjust_tail(program, difference);
            build(program);
        })
        .map_err(|error| error.fault)
    };
    for difference in [-1, 0, 100] {
        let loaded = on_old_pointer(difference, |program| program.load(Size::Byte, R0, Register::R9, 0));
        assert_eq!(loaded, Err(Fault::OldPointer));
        let stored = on_old_pointer(difference, |program| program.store(Size::Byte, Register::R9, 0, 1));
        assert_eq!(stored, Err(Fault::OldPointer));
    }
    let subtracted = on_old_pointer(-1, |program| {
        program.load(Size::Word, R0, R6, 4);
        program.alu64(Alu::Sub, R0, Register::R9);
    });
    assert_eq!(subtracted, Err(Fault::PointerOperand(Area::Frame)));
    let reloaded = on_old_pointer(-1, |program| {
        program.load(Size::Word, Register::R9, R6, 0);
        program.load(Size::Byte, R0, Register::R9, 0);
    });
    assert_eq!(reloaded, Ok(1));
}
