//! Calling convention between the host and translated code.

use super::state::State;

/// Function of a handler, or of its cold part. It takes the task's state and the zero-extended value of a0.
pub(crate) type EntryFunction = unsafe extern "C" fn(*mut State, u64) -> RawResult;

/// Both result registers of an [`EntryFunction`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawResult {
    /// [`RETURNED`]; [`LAST_SEND`] plus the address of an instruction, which is negative; or any positive value after
    /// an exit that [`State::exit`] describes.
    pub(crate) code: i64,
    /// After [`LAST_SEND`], the frame's address in the lower half and its length in the upper half; otherwise undefined.
    pub(crate) frame: u64,
}

/// Result of translated code after a return of the handler.
pub(crate) const RETURNED: i64 = 0;

/// Added to the address of an instruction: the handler returned, and its caller must issue the send of that instruction.
pub(crate) const LAST_SEND: i64 = i64::MIN;

/// Result of [`HostCalls::store`](super::state::HostCalls::store) when the task must be parked. The task repeats the
/// store when it is resumed.
pub(crate) const PENDING: i64 = -2;

/// Result of a host call that ends the task: the complement of the state's address. It is negative, since addresses of
/// processes are not. The code finds the state in it and need not keep the state's address across its last call.
pub(crate) fn task_ended(state: *mut State) -> i64 {
    !(state.addr() as i64)
}
