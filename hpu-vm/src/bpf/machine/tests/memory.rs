use super::{R0, R1, R2, R3, R6, R7, R10, bytes_of, fault, run, run_with};
use crate::bpf::assembler::Assembler;
use crate::bpf::insn::{Alu, Atomic, Insn, Operand, Register, Size};
use crate::bpf::machine::{Access, Area, Fault, MapMemory};

const SIZES: [Size; 4] = [Size::Byte, Size::Half, Size::Word, Size::Double];

/// Runs a program on a writable map, whose value R6 points to.
fn run_on_map(value: &mut [u8], build: impl FnOnce(&mut Assembler)) -> Result<u32, Fault> {
    run_with(&mut vec![], vec![MapMemory::Value(value)], |program| {
        program.push(Insn::MapValue { to: R6, map: 0, offset: 0 });
        build(program);
    })
    .map_err(|error| error.fault)
}

#[test]
fn loads_zero_extend() {
    let numbers = bytes_of(&[u64::MAX, 0]);
    for (size, expected) in SIZES.into_iter().zip([0xff, 0xffff, 0xffff_ffff, u64::MAX]) {
        let mut loaded = [0; 8];
        let maps = vec![MapMemory::Constants(&numbers), MapMemory::Value(&mut loaded)];
        let action = run_with(&mut vec![], maps, |program| {
            program.push(Insn::MapValue { to: R6, map: 0, offset: 0 });
            program.push(Insn::MapValue { to: R7, map: 1, offset: 0 });
            program.load(size, R0, R6, 0);
            program.store(Size::Double, R7, 0, R0);
        });
        assert!(action.is_ok());
        assert_eq!(u64::from_ne_bytes(loaded), expected, "{size:?}");
    }
}

#[test]
fn stores_write_the_lower_bytes() {
    for (size, expected) in SIZES.into_iter().zip([0xfe, 0xfffe, 0xffff_fffe, u64::MAX - 1]) {
        let mut value = [0; 24];
        let ran = run_on_map(&mut value, |program| {
            program.mov64(R0, -2);
            program.store(size, R6, 3, R0);
            program.store(size, R6, 16, -2);
        });
        assert!(ran.is_ok());
        let mut bytes = expected.to_ne_bytes();
        if cfg!(target_endian = "big") {
            bytes.rotate_right(size.bytes() as usize);
        }
        assert_eq!((&value[..3], &value[3..11], &value[16..]), (&[0; 3][..], &bytes[..], &bytes[..]), "{size:?}");
    }
}

#[test]
fn accesses_stay_inside_the_frame() {
    for size in SIZES {
        let bytes = size.bytes();
        let last = 64 - i16::try_from(bytes).expect("at most 8");
        for (offset, is_inside) in [(-1, false), (0, true), (last, true), (last + 1, false), (i16::MIN, false)] {
            let outside =
                |access| Fault::Outside { access, area: Area::Frame, offset: offset.into(), bytes, length: 64 };
            let loaded = run(|program| {
                program.load(Size::Word, R2, R1, 0);
                program.load(size, R0, R2, offset);
            });
            let stored = run(|program| {
                program.load(Size::Word, R2, R1, 0);
                program.mov64(R0, 1);
                program.store(size, R2, offset, R0);
            });
            assert_eq!(loaded.err().map(|error| error.fault), (!is_inside).then_some(outside(Access::Load)));
            assert_eq!(stored.err().map(|error| error.fault), (!is_inside).then_some(outside(Access::Store)));
        }
    }
    let mut frame = vec![0; 3];
    let stored = run_with(&mut frame, vec![], |program| {
        program.load(Size::Word, R2, R1, 0);
        program.mov64(R0, 0);
        program.store(Size::Byte, R2, 2, 5);
    });
    assert_eq!((stored, frame), (Ok(0), vec![0, 0, 5]));
}

#[test]
fn accesses_stay_inside_map_values() {
    let outside =
        |access, offset, bytes| Err(Fault::Outside { access, area: Area::MapValue(0), offset, bytes, length: 16 });
    let mut value = [0; 16];
    let loaded = run_on_map(&mut value, |program| program.load(Size::Word, R0, R6, 13));
    assert_eq!(loaded, outside(Access::Load, 13, 4));
    let stored = run_on_map(&mut value, |program| {
        program.alu64(Alu::Sub, R6, 1);
        program.store(Size::Byte, R6, 0, 1);
    });
    assert_eq!(stored, outside(Access::Store, -1, 1));
    let wrapped = run_on_map(&mut value, |program| {
        program.mov64(R0, -1);
        program.alu64(Alu::Rsh, R0, 1);
        program.alu64(Alu::Add, R6, R0);
        program.load(Size::Double, R0, R6, 0);
    });
    assert_eq!(wrapped, outside(Access::Load, i64::MAX, 8));
    let behind = run_on_map(&mut value, |program| program.push(Insn::MapValue { to: R6, map: 0, offset: 16 }));
    assert_eq!(behind, outside(Access::Load, 16, 1));
    let last = run_on_map(&mut value, |program| {
        program.push(Insn::MapValue { to: R6, map: 0, offset: 15 });
        program.load(Size::Byte, R0, R6, 0);
    });
    assert_eq!(last, Ok(0));
}

#[test]
fn areas_forbid_accesses() {
    let forbidden = |access, area, offset| Fault::Forbidden { access, area, offset };
    let constants = |build: fn(&mut Assembler)| {
        let ran = run_with(&mut vec![], vec![MapMemory::Constants(&[0; 8])], |program| {
            program.push(Insn::MapValue { to: R6, map: 0, offset: 0 });
            program.mov64(R0, 1);
            build(program);
        });
        ran.expect_err("refused").fault
    };
    let stored = constants(|program| program.store(Size::Word, R6, 4, R0));
    assert_eq!(stored, forbidden(Access::Store, Area::MapValue(0), 4));
    let added = constants(|program| program.push(Insn::Atomic { op: Atomic::Add, base: R6, offset: 4, reg: R0 }));
    assert_eq!(added, forbidden(Access::Atomic, Area::MapValue(0), 4));
    let stored = fault(|program| program.store(Size::Word, R1, 16, 1));
    assert_eq!(stored, forbidden(Access::Store, Area::Context, 16));
    let loaded = fault(|program| {
        program.load(Size::Word, R2, R1, 4);
        program.load(Size::Byte, R0, R2, -1);
    });
    assert_eq!(loaded, forbidden(Access::Load, Area::FrameEnd, 63));
    let loaded = constants(|program| {
        program.push(Insn::Map { to: R2, map: 0 });
        program.load(Size::Byte, R0, R2, 0);
    });
    assert_eq!(loaded, forbidden(Access::Load, Area::Map(0), 0));
    let loaded = fault(|program| {
        program.mov64(R2, 0x1234);
        program.load(Size::Byte, R0, R2, 0);
    });
    assert_eq!(loaded, Fault::NotPointer(0x1234));
    let sockets = run_with(&mut vec![], vec![MapMemory::Sockets(&[])], |program| {
        program.push(Insn::MapValue { to: R6, map: 0, offset: 0 });
    });
    assert_eq!(sockets.expect_err("refused").fault, forbidden(Access::Load, Area::MapValue(0), 0));
}

#[test]
fn the_stack_holds_numbers_and_pointers() {
    let number = run(|program| {
        program.mov64(R2, -2);
        program.store(Size::Double, R10, -512, R2);
        program.store(Size::Byte, R10, -512, 0);
        program.load(Size::Word, R0, R10, -508);
    });
    assert_eq!(number, Ok(u32::MAX));
    let byte = run(|program| {
        program.load(Size::Word, R2, R1, 0);
        program.alu64(Alu::Add, R2, 5);
        program.store(Size::Double, R10, -8, R2);
        program.mov64(R3, R10);
        program.alu64(Alu::Add, R3, -16);
        program.load(Size::Double, R3, R3, 8);
        program.load(Size::Byte, R0, R3, 1);
    });
    assert_eq!(byte, Ok(6));
}

#[test]
fn the_stack_refuses_accesses() {
    for (size, offset, is_misaligned) in [
        (Size::Double, -520, false),
        (Size::Double, 0, false),
        (Size::Byte, -513, false),
        (Size::Double, -12, true),
        (Size::Word, -6, true),
        (Size::Half, -1, false),
    ] {
        let (access, area, bytes) = (Access::Store, Area::Stack, size.bytes());
        let expected = if is_misaligned {
            Fault::Misaligned { access, area, offset: offset.into(), bytes }
        } else {
            Fault::Outside { access, area, offset: offset.into(), bytes, length: 512 }
        };
        assert_eq!(fault(|program| program.store(size, R10, offset, 1)), expected, "{offset}");
    }
    assert_eq!(fault(|program| program.load(Size::Byte, R0, R10, -1)), Fault::UnwrittenStack(-1));
    let partly_written = fault(|program| {
        program.store(Size::Word, R10, -8, 1);
        program.store(Size::Half, R10, -4, 1);
        program.load(Size::Double, R0, R10, -8);
    });
    assert_eq!(partly_written, Fault::UnwrittenStack(-8));
}

#[test]
fn pointers_are_stored_whole_and_on_the_stack_only() {
    let part = fault(|program| {
        program.store(Size::Double, R10, -8, R1);
        program.load(Size::Word, R0, R10, -8);
    });
    assert_eq!(part, Fault::PartOfPointer(-8));
    let overwritten = fault(|program| {
        program.store(Size::Double, R10, -8, R1);
        program.store(Size::Byte, R10, -8, 0);
        program.load(Size::Double, R0, R10, -8);
    });
    assert_eq!(overwritten, Fault::UnwrittenStack(-8));
    let short = fault(|program| program.store(Size::Word, R10, -8, R1));
    assert_eq!(short, Fault::PointerOperand(Area::Context));
    let shown = run_on_map(&mut [0; 8], |program| program.store(Size::Double, R6, 0, R6));
    assert_eq!(shown, Err(Fault::PointerOperand(Area::MapValue(0))));
    let in_frame = fault(|program| {
        program.load(Size::Word, R2, R1, 0);
        program.store(Size::Double, R2, 0, R2);
    });
    assert_eq!(in_frame, Fault::PointerOperand(Area::Frame));
}

#[test]
fn atomic_operations_return_the_old_word() {
    const OLD: u32 = 0x8000_00f0;
    for (op, operand, new) in [
        (Atomic::Add, 0x8000_0001_u32, 0xf1),
        (Atomic::Or, 0x0f, 0x8000_00ff),
        (Atomic::And, 0x30, 0x30),
        (Atomic::Xor, 0xff, 0x8000_000f),
        (Atomic::Exchange, 7, 7),
    ] {
        let mut value = [[0xee; 4], OLD.to_ne_bytes(), [0xee; 4], [0; 4], [0; 4]].concat();
        let on_stack = run_on_map(&mut value, |program| {
            program.mov64(R7, -1);
            program.mov32(R7, operand);
            program.mov64(R2, R7);
            program.push(Insn::Atomic { op, base: R6, offset: 4, reg: R7 });
            program.store(Size::Double, R6, 12, R7);
            program.mov32(R3, OLD);
            program.store(Size::Word, R10, -4, R3);
            program.push(Insn::Atomic { op, base: R10, offset: -4, reg: R2 });
            program.load(Size::Word, R0, R10, -4);
        });
        assert_eq!(on_stack, Ok(new), "{op:?}");
        let expected = [&[0xee; 4][..], &new.to_ne_bytes(), &[0xee; 4], &u64::from(OLD).to_ne_bytes()].concat();
        assert_eq!(value, expected, "{op:?}");
    }
}

#[test]
fn compare_exchange_uses_r0() {
    for (expected, new) in [(5, 9), (6, 5)] {
        let mut value = bytes_of(&[5, 0, 0]);
        let returned = run_on_map(&mut value, |program| {
            // The comparison ignores the upper half of R0.
            program.mov64(R0, 1);
            program.alu64(Alu::Lsh, R0, 32);
            program.alu64(Alu::Add, R0, expected);
            program.mov64(R7, 9);
            program.push(Insn::Atomic { op: Atomic::CompareExchange, base: R6, offset: 0, reg: R7 });
            program.store(Size::Double, R6, 8, R0);
            program.store(Size::Double, R6, 16, R7);
        });
        assert_eq!((returned, value), (Ok(5), bytes_of(&[new, 5, 9])), "{expected}");
    }
    let unwritten = run_on_map(&mut [0; 8], |program| {
        program.mov64(R7, 9);
        program.push(Insn::Atomic { op: Atomic::CompareExchange, base: R6, offset: 0, reg: R7 });
    });
    assert_eq!(unwritten, Err(Fault::UnwrittenRegister(0)));
}

#[test]
fn atomic_operations_are_refused() {
    let access = Access::Atomic;
    let add = |base: Register, offset, reg| Insn::Atomic { op: Atomic::Add, base, offset, reg };
    let on_map = |offset| {
        run_on_map(&mut [0; 8], |program| {
            program.mov64(R0, 1);
            program.push(add(R6, offset, R0));
        })
    };
    let area = Area::MapValue(0);
    assert_eq!(on_map(4), Ok(0));
    assert_eq!(on_map(2), Err(Fault::Misaligned { access, area, offset: 2, bytes: 4 }));
    assert_eq!(on_map(8), Err(Fault::Outside { access, area, offset: 8, bytes: 4, length: 8 }));
    assert_eq!(on_map(-4), Err(Fault::Outside { access, area, offset: -4, bytes: 4, length: 8 }));
    let on_frame = fault(|program| {
        program.load(Size::Word, R2, R1, 0);
        program.mov64(R0, 1);
        program.push(add(R2, 4, R0));
    });
    assert_eq!(on_frame, Fault::Forbidden { access, area: Area::Frame, offset: 4 });
    let on_context = fault(|program| {
        program.mov64(R0, 1);
        program.push(add(R1, 0, R0));
    });
    assert_eq!(on_context, Fault::Forbidden { access, area: Area::Context, offset: 0 });
    let on_pointer = fault(|program| {
        program.store(Size::Double, R10, -8, R1);
        program.mov64(R0, 1);
        program.push(add(R10, -8, R0));
    });
    assert_eq!(on_pointer, Fault::PartOfPointer(-8));
    let of_pointer = fault(|program| {
        program.store(Size::Word, R10, -8, 1);
        program.push(add(R10, -8, R1));
    });
    assert_eq!(of_pointer, Fault::PointerOperand(Area::Context));
}

#[test]
fn constants_are_stored_sign_extended() {
    let mut value = [0; 8];
    let stored = run_on_map(&mut value, |program| {
        program.mov64(R0, 0);
        program.push(Insn::Store { size: Size::Double, base: R6, offset: 0, from: Operand::Immediate(i32::MIN) });
    });
    assert_eq!((stored, i64::from_ne_bytes(value)), (Ok(0), i32::MIN.into()));
}
