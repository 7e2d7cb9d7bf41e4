//! Bytes that no attack may change: another context's memory, and the host's on both sides of the attacker's addresses.
#![allow(unsafe_code, reason = "maps canaries next to an address space")]

use hpu_vm::Code;
use hpu_vm::memory::{GUARD_ABOVE, GUARD_BELOW, Space};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use spin_abi::map::PAGE;

use crate::guest::{FOREIGN, Guest};

/// What they are filled with.
const CANARY: u8 = 0xc5;
/// Bytes on each side.
const LEN: usize = 16 * PAGE as usize;
static CANARIES: [u8; LEN] = [CANARY; LEN];

/// A mapping of the host next to an address space.
struct Neighbour(*mut u8);

impl Neighbour {
    /// `None` when something else is there.
    fn new(at: *mut u8) -> Option<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: with this flag nothing that is mapped is replaced.
        let there = unsafe { mmap_anonymous(at.cast(), LEN, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let there = there.ok()?.cast::<u8>();
        // SAFETY: just mapped, `LEN` bytes long.
        unsafe { there.write_bytes(CANARY, LEN) };
        Some(Self(there))
    }

    fn intact(&self) -> bool {
        // SAFETY: mapped by `new`, and nobody writes it.
        let bytes = unsafe { std::slice::from_raw_parts(self.0, LEN) };
        bytes == CANARIES
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the only references were in `intact`.
        let _ = unsafe { munmap(self.0.cast(), LEN) };
    }
}

/// All canaries.
pub struct Canaries {
    foreign: Guest,
    before: Vec<u8>,
    heap: Vec<u8>,
    neighbours: Vec<Neighbour>,
}

impl Canaries {
    pub fn new() -> Self {
        let foreign = Guest::new(FOREIGN, &Code::new(Vec::new()), CANARY);
        let before = foreign.memory();
        Self { foreign, before, heap: CANARIES.to_vec(), neighbours: Vec::new() }
    }

    /// Puts canaries right below and right above the addresses of an attacker, where the host has nothing of its own.
    pub fn surround(&mut self, space: &Space) {
        self.neighbours.clear();
        let below = space.base().wrapping_sub(GUARD_BELOW + LEN);
        let above = space.base().wrapping_add((1 << 32) + GUARD_ABOVE);
        self.neighbours.extend([below, above].into_iter().filter_map(Neighbour::new));
    }

    /// What is no longer as it was.
    pub fn harmed(&self) -> Option<String> {
        if self.foreign.memory() != self.before {
            return Some("another context's memory changed".to_owned());
        }
        if self.heap != CANARIES {
            return Some("the host's heap changed".to_owned());
        }
        let intact = self.neighbours.iter().all(Neighbour::intact);
        (!intact).then(|| "the host's memory next to the attacker's changed".to_owned())
    }
}

#[test]
fn harm_is_seen() {
    let mut canaries = Canaries::new();
    let guest = Guest::new(crate::guest::OWN, &Code::new(Vec::new()), 0);
    canaries.surround(guest.slot.space());
    assert_eq!(canaries.harmed(), None);
    canaries.foreign.set_word(FOREIGN.data, 1);
    assert!(canaries.harmed().is_some());
    canaries.foreign.set_word(FOREIGN.data, u32::from_le_bytes([CANARY; 4]));
    canaries.heap[7] ^= 1;
    assert!(canaries.harmed().is_some());
}
