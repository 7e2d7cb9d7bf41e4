//! Host addresses, and flags of accesses.

use cranelift_codegen::ir::{MemFlagsData, Value};

/// Access to the state and to tables of the translation: never traps.
pub(super) const TRUSTED: MemFlagsData = MemFlagsData::trusted();
/// Access to what does not change while the function runs: Cranelift merges such loads, and moves them out of loops.
pub(super) const FIXED: MemFlagsData = TRUSTED.with_readonly().with_can_move();
/// Access to guest memory: any alignment, may fault.
pub(super) const GUEST: MemFlagsData = MemFlagsData::new();

/// A host address: base and constant offset.
#[derive(Clone, Copy)]
pub(super) struct Host(pub(super) Value, pub(super) i32);

/// An offset in the state.
pub(super) fn offset(at: usize) -> i32 {
    // A state is some hundred bytes long.
    i32::try_from(at).unwrap_or(i32::MAX)
}
