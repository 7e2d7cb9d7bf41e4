//! Entering translated code.
#![allow(unsafe_code, reason = "calls code that was written at run time")]

use std::mem;

use super::code_memory::CodeMemory;
use super::state::State;

/// Host code of a handler. Its translation must be alive when it is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(unsafe extern "C" fn(*mut State));

impl Entry {
    /// The function at `offset` of `memory`.
    pub(crate) fn new(memory: &CodeMemory, offset: usize) -> Self {
        let address = memory.address(offset);
        // SAFETY: the translator compiled a function of this signature and calling convention to this address; whether it
        // may be called is for those who do.
        Self(unsafe { mem::transmute::<*const std::ffi::c_void, unsafe extern "C" fn(*mut State)>(address) })
    }

    /// Executes it, up to the end of the task or to where it leaves off.
    ///
    /// # Safety
    /// Its translation lives, `state` is attached to a live space, and [`crate::trap::enter`] is around the call.
    pub(crate) unsafe fn call(self, state: *mut State) {
        // SAFETY: as the caller says.
        unsafe { (self.0)(state) }
    }
}
