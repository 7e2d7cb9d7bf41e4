//! Loads a mutation of a valid image; when it is accepted, runs what it calls handlers for a while.
//!
//! An input is a list of changes to the tests' sample file, three bytes each (place, value): nearly every one
//! passes the first checks, which random bytes hardly ever do. An input that begins with the ELF magic is taken whole.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use hpu_vm::{Hart, Image, Kind, Memory, NoDevice, Range, RegionKind, View, run};
use libfuzzer_sys::fuzz_target;
use spin_abi::map::Machine;

const MACHINE: Machine = Machine::PSPIN;

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
});

/// The sample file with the changes `input` lists.
fn mutated(input: &[u8]) -> Vec<u8> {
    let mut file = support::sample().build();
    for change in input.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
        if let Some(byte) = file.get_mut(place) {
            *byte = change[2];
        }
    }
    file
}
