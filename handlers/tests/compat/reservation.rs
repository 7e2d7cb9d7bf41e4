//! A reservation that is lost between the load and the store: another HPU's store at each instruction of an attempt (`reservation.c`).

use hpu_vm::{Exit, Hart, Image, Memory, NoDevice, Op, Range, Reg, RegionKind, View, run};
use spin_abi::fault::{Cause, Fault};

use super::{COMPILERS, FPSPIN, PSPIN, build};

/// Address of the word.
const WORD: u32 = 0x1000_8000;
const OLD: u32 = 5;
const NEW: u32 = 6;
const ANOTHER: u32 = 7;

/// Runs a function on the word and returns its result and the word afterwards. Another HPU stores [`ANOTHER`] behind the first
/// instruction `behind`.
fn attempt(image: &Image, function: &str, before: u32, behind: Option<Op>) -> (i32, u32) {
    let mut bytes = before.to_le_bytes();
    let mut view = View::new();
    let range = Range { kind: RegionKind::Data, base: WORD, memory: Memory::ReadWrite(&mut bytes) };
    view.push(range).expect("one range");
    let mut hart = Hart::new(0);
    hart.begin(image.symbol(function).expect("defined"), 0, WORD);
    hart.set(Reg::new(11), OLD);
    hart.set(Reg::new(12), NEW);
    let mut behind = behind;
    for _ in 0..100 {
        let op = image.code().fetch(hart.pc).map(|decoded| decoded.inst.op);
        match run(&mut hart, image.code(), &mut view, &mut NoDevice, 1) {
            Exit::Fault(Fault { cause: Cause::InstructionLimit, .. }) => {}
            Exit::Returned => {
                let result = hart.get(Reg::A0).cast_signed();
                drop(view);
                assert_eq!(behind, None, "the instruction was executed");
                return (result, u32::from_le_bytes(bytes));
            }
            exit => panic!("{exit:?}"),
        }
        if op.is_some() && op == behind {
            view.copy_in(WORD, &ANOTHER.to_le_bytes()).expect("the word");
            behind = None;
        }
    }
    panic!("an attempt does not end: it tries again");
}

#[test]
fn an_attempt_is_lost_once_and_not_repeated() {
    for target in [PSPIN, FPSPIN] {
        for compiler in COMPILERS {
            let what = format!("{}, {compiler}", target.abi);
            let image = build(target, compiler, "reservation.c", &[]);
            let image = Image::load(&image, &target.machine).expect("an image");
            let run = |function, before, behind| attempt(&image, function, before, behind);
            for function in ["attempt", "conditional"] {
                assert_eq!(run(function, OLD, None), (0, NEW), "{what}, {function}");
                let (lost, word) = run(function, OLD, Some(Op::LrW));
                assert!(lost > 0 && word == ANOTHER, "{what}, {function}: {lost}, {word}");
                // Behind the store, the other's store is the later one.
                assert_eq!(run(function, OLD, Some(Op::ScW)), (0, ANOTHER), "{what}, {function}");
            }
            assert_eq!(run("attempt", ANOTHER, None), (-1, ANOTHER), "{what}");
            assert_eq!(run("conditional", ANOTHER, None), (0, NEW), "{what}: whatever was there");
        }
    }
}
