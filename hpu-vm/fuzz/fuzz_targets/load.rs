//! Loads a mutation of a valid image; when it is accepted, runs what it calls handlers for a while and asks for the
//! lines of its code.
//!
//! An input is a list of changes, three bytes each (place, value), to the tests' sample file or, if its first byte is
//! odd, to a handler built with `-g`: nearly every one passes the first checks, which random bytes hardly ever do. An
//! input that begins with the ELF magic is taken whole.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::sync::LazyLock;

use hpu_vm::{Hart, Image, Kind, Memory, NoDevice, Range, RegionKind, View, run};
use libfuzzer_sys::fuzz_target;
use spin_abi::map::{Machine, PROGRAM_BASE};

const MACHINE: Machine = Machine::PSPIN;

/// An image with line tables.
static WITH_LINES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let source = spin_handlers::source("null_load");
    spin_handlers::try_build(&[&source], &["-g"]).expect("our handlers compile")
});

fuzz_target!(|input: &[u8]| {
    let file = if input.starts_with(b"\x7fELF") { input.to_vec() } else { mutated(input) };
    let Ok(image) = Image::load(&file, &MACHINE) else { return };
    let mut memory = image.instantiate();
    let mut stack = [0; 4096];
    let mut view = View::new();
    image.map_into(&mut view).expect("segments of an accepted image are disjoint");
    memory.map_into(&mut view).expect("segments of an accepted image are disjoint");
    let base = MACHINE.stack_base(0, 0);
    view.push(Range { kind: RegionKind::Stack, base, memory: Memory::ReadWrite(&mut stack) })
        .expect("no segment lies in L1");
    for handler in Kind::ALL.into_iter().filter_map(|kind| image.handler(kind)) {
        let mut hart = Hart::new(0);
        hart.begin(handler, base + 4096, base);
        run(&mut hart, image.code(), &mut view, &mut NoDevice, 1000);
        if let Some((name, _)) = image.symbolize(hart.pc) {
            assert!(!name.is_empty());
        }
    }
    for pc in PROGRAM_BASE..PROGRAM_BASE + MACHINE.program_size {
        for at in image.line(pc).into_iter().chain(image.inlined_at(pc)) {
            assert!(image.code().contains(pc) && at.line > 0 && !at.file.is_empty());
        }
    }
});

/// One of the valid files with the changes `input` lists.
fn mutated(input: &[u8]) -> Vec<u8> {
    let Some((which, input)) = input.split_first() else { return Vec::new() };
    let mut file = if which % 2 == 0 { support::sample().build() } else { WITH_LINES.clone() };
    for change in input.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
        if let Some(byte) = file.get_mut(place) {
            *byte = change[2];
        }
    }
    file
}
