//! The cluster's DMA engine: copies within the NIC memory that a handler may touch, L1 and L2 (PsPIN paper §III-A).
//!
//! A launch makes the whole copy, so it is complete at once. A copy of memory that the handler may not access ends the handler
//! with the fault of the corresponding load or store.

use hpu_vm::{Trap, View};
use spin_abi::fault::Cause;
use spin_abi::regs::dma;

/// Bytes copied at a time.
const CHUNK: u32 = 1024;

/// Registers of the next copy, and the number of the last one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterDma {
    source: [u32; 2],
    destination: [u32; 2],
    bytes: u32,
    config: u32,
    launched: u32,
    written: Option<(u32, u32)>,
}

impl ClusterDma {
    /// Reads the register at `offset`. A launch calls `copied` with the number of bytes.
    ///
    /// # Errors
    /// [`Trap::Fault`]: there is no such register, or the task may not access the memory of the copy.
    pub fn load(&mut self, view: &mut View<'_>, offset: u32, copied: impl FnOnce(u32)) -> Result<u32, Trap> {
        Ok(match offset {
            dma::SOURCE => self.source[0],
            dma::SOURCE_HIGH => self.source[1],
            dma::DESTINATION => self.destination[0],
            dma::DESTINATION_HIGH => self.destination[1],
            dma::BYTES => self.bytes,
            dma::CONFIG => self.config,
            dma::DONE => self.launched,
            dma::LAUNCH => {
                copied(self.bytes);
                self.copy(view).map_err(Trap::Fault)?;
                self.launched = self.launched.wrapping_add(1);
                self.launched
            }
            _ => return Err(Trap::Fault(Cause::DeviceAccess)),
        })
    }

    /// Writes the register at `offset`.
    ///
    /// # Errors
    /// [`Trap::Fault`]: there is no such register, or it is read-only.
    pub const fn store(&mut self, offset: u32, value: u32) -> Result<(), Trap> {
        let register = match offset {
            dma::SOURCE => &mut self.source[0],
            dma::SOURCE_HIGH => &mut self.source[1],
            dma::DESTINATION => &mut self.destination[0],
            dma::DESTINATION_HIGH => &mut self.destination[1],
            dma::BYTES => &mut self.bytes,
            dma::CONFIG => &mut self.config,
            _ => return Err(Trap::Fault(Cause::DeviceAccess)),
        };
        *register = value;
        Ok(())
    }

    /// Address and bytes that the last copy has written. `None` after the first call.
    #[inline]
    pub const fn take_written(&mut self) -> Option<(u32, u32)> {
        self.written.take()
    }

    /// Copies in the order of addresses in which overlapping bytes are read before they are written.
    fn copy(&mut self, view: &mut View<'_>) -> Result<(), Cause> {
        let ([from, from_high], [to, to_high], len) = (self.source, self.destination, self.bytes);
        if len == 0 {
            return Ok(());
        }
        if from_high != 0 || view.kind_of(from, len).is_none() {
            return Err(Cause::LoadAccess);
        }
        if to_high != 0 || !view.writable(to, len) {
            return Err(Cause::StoreAccess);
        }
        let mut buffer = [0; CHUNK as usize];
        let chunks = len.div_ceil(CHUNK);
        let upwards = view.normalise(to) <= view.normalise(from);
        for number in 0..chunks {
            let done = CHUNK * if upwards { number } else { chunks - 1 - number };
            let chunk = &mut buffer[..CHUNK.min(len - done) as usize];
            view.copy_out(from + done, chunk).ok_or(Cause::LoadAccess)?;
            view.copy_in(to + done, chunk).ok_or(Cause::StoreAccess)?;
        }
        self.written = Some((to, len));
        Ok(())
    }
}
