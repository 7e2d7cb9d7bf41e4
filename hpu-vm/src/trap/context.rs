//! The registers of interrupted code that describe a fault.

use libc::{c_void, ucontext_t};

/// The code that a signal interrupted.
pub(super) struct Context(*mut ucontext_t);

impl Context {
    /// # Safety
    /// `context` is the third argument of a signal handler that has not returned yet, and has no other user.
    pub(super) const unsafe fn new(context: *mut c_void) -> Self {
        Self(context.cast())
    }
}

#[cfg(target_arch = "x86_64")]
impl Context {
    /// Bit of the page fault's error code: it was a write (Intel SDM, vol. 3, 5.7).
    const WRITE: i64 = 1 << 1;

    /// The host program counter.
    pub(super) fn pc(&self) -> usize {
        // SAFETY: `new` asked for a valid context.
        let pc = unsafe { (*self.0).uc_mcontext.gregs[libc::REG_RIP as usize] };
        usize::try_from(pc).unwrap_or(0)
    }

    /// Sets the host program counter.
    pub(super) fn set_pc(&mut self, pc: usize) {
        // SAFETY: `new` asked for a valid context.
        unsafe { (*self.0).uc_mcontext.gregs[libc::REG_RIP as usize] = pc as i64 }
    }

    /// Whether the fault was a write.
    pub(super) fn is_write(&self) -> bool {
        // SAFETY: `new` asked for a valid context.
        unsafe { (*self.0).uc_mcontext.gregs[libc::REG_ERR as usize] & Self::WRITE != 0 }
    }
}

#[cfg(target_arch = "aarch64")]
impl Context {
    /// Bit of the exception syndrome of a data abort: it was a write (Arm ARM, D24.2.37).
    const WRITE: u64 = 1 << 6;
    /// `ESR_MAGIC` of the kernel's `asm/sigcontext.h`.
    const ESR: u32 = 0x4553_5201;
    /// Bytes of the context's area for records.
    const RECORDS: usize = 4096;

    /// The host program counter.
    pub(super) fn pc(&self) -> usize {
        // SAFETY: `new` asked for a valid context.
        unsafe { (*self.0).uc_mcontext.pc as usize }
    }

    /// Sets the host program counter.
    pub(super) fn set_pc(&mut self, pc: usize) {
        // SAFETY: `new` asked for a valid context.
        unsafe { (*self.0).uc_mcontext.pc = pc as u64 }
    }

    /// Whether the fault was a write, by the syndrome; by the instruction where there is no syndrome (user emulation).
    pub(super) fn is_write(&self) -> bool {
        self.syndrome().map_or_else(
            // SAFETY: the instruction was just executed, so it can be read.
            || is_store(unsafe { std::ptr::read(self.pc() as *const u32) }),
            |syndrome| syndrome & Self::WRITE != 0,
        )
    }

    /// Returns the syndrome from its record behind the registers (`struct sigcontext`, 16-byte aligned).
    fn syndrome(&self) -> Option<u64> {
        let mut at = 0;
        // SAFETY: `new` asked for a valid context, which ends with this area; the kernel ends the records with a zero
        // magic number and aligns them to 16 bytes.
        unsafe {
            let pstate = &raw const (*self.0).uc_mcontext.pstate;
            let records = pstate.cast::<u8>().add(16);
            while at + 16 <= Self::RECORDS {
                let record = records.add(at);
                let (magic, size) = (record.cast::<u32>().read(), record.cast::<u32>().add(1).read() as usize);
                match magic {
                    Self::ESR => return Some(record.add(8).cast::<u64>().read()),
                    0 => return None,
                    _ if size < 16 => return None,
                    _ => at += size,
                }
            }
        }
        None
    }
}

/// Whether an A64 load or store is a store, of those that compilers emit for plain accesses (Arm ARM, C4.1.88): `opc`
/// is 0 in stores, and 2 in those of 128-bit vectors; exclusives and pairs have a bit for loads.
#[cfg(any(target_arch = "aarch64", test))]
const fn is_store(instruction: u32) -> bool {
    let (opc, size, vector) = (instruction >> 22 & 3, instruction >> 30, instruction >> 26 & 1 != 0);
    match instruction >> 27 & 7 {
        // Register with any kind of offset.
        0b111 => opc == 0 || (vector && size == 0 && opc == 2),
        // Pairs, exclusives, acquire and release.
        _ => opc & 1 == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::is_store;

    #[test]
    fn stores_of_aarch64_are_told_from_loads() {
        let stores = [
            0x3900_0020, // strb w0, [x1]
            0x7900_0020, // strh w0, [x1]
            0xb900_0020, // str w0, [x1]
            0xb822_6820, // str w0, [x1, x2]
            0x3d80_0020, // str q0, [x1]
            0xa900_0440, // stp x0, x1, [x2]
            0x8800_fc41, // stlxr w0, w1, [x2]
        ];
        let loads = [
            0x3940_0020, // ldrb w0, [x1]
            0x39c0_0020, // ldrsb w0, [x1]
            0x3980_0020, // ldrsb x0, [x1]
            0x7940_0020, // ldrh w0, [x1]
            0xb940_0020, // ldr w0, [x1]
            0xb862_6820, // ldr w0, [x1, x2]
            0x3dc0_0020, // ldr q0, [x1]
            0xa940_0440, // ldp x0, x1, [x2]
            0x885f_fc20, // ldaxr w0, [x1]
        ];
        assert!(stores.into_iter().all(is_store));
        assert!(!loads.into_iter().any(is_store));
    }
}
