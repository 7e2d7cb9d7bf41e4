//! Accesses that may be to a device.

use crate::analysis::dataflow::RegState;
use crate::inst::{Format, Inst};

/// Whether only the address that a load or store has at run time tells whether it is a device's. With `any_device`,
/// registers other than sp may hold such an address.
pub(crate) fn may_be_device(inst: &Inst, state: &RegState, any_device: bool) -> bool {
    let moves = matches!(inst.op.format(), Format::Load | Format::Store);
    let unknown = state.constant(inst.rs1).is_none();
    moves && unknown && (state.may_be_device(inst.rs1) || (any_device && !state.is_stack(inst.rs1)))
}
