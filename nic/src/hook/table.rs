//! The table of the programs that the XDP program calls, one for each context in the hook.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::sys;
use crate::error::NicError;

/// A map of programs (`BPF_MAP_TYPE_PROG_ARRAY`) by index. Dropping it closes the descriptor.
#[derive(Debug)]
pub struct HookTable {
    map: OwnedFd,
}

impl HookTable {
    /// The table with this map.
    #[must_use]
    pub const fn new(map: OwnedFd) -> Self {
        Self { map }
    }

    /// Makes `program` the one at `index`, in place of the present one. The table keeps the program.
    ///
    /// # Errors
    /// The kernel refuses: the index is beyond the map, or the descriptor is not of an XDP program.
    pub fn set(&self, index: u32, program: BorrowedFd<'_>) -> Result<(), NicError> {
        let set = sys::set_program(&self.map, index, program);
        set.map_err(|error| NicError::system("put a program in the table of programs", error))
    }

    /// Removes the program at `index`, if there is one.
    ///
    /// # Errors
    /// The kernel refuses: the index is beyond the map.
    pub fn clear(&self, index: u32) -> Result<(), NicError> {
        match sys::remove_program(&self.map, index) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                Err(NicError::system("remove a program from the table of programs", error))
            }
            _ => Ok(()),
        }
    }
}
