//! The cluster's DMA engine: copies within the NIC memory that a handler may touch, L1 and L2 (PsPIN paper §III-A).
//!
//! A copy is made when it is launched, so it is complete then. One that touches what the handler may not ends the handler, as the
//! load or store would of which it stands in for many.

use hpu_vm::{Trap, View};
use spin_abi::fault::Cause;
use spin_abi::regs::dma;

/// Bytes copied at a time.
const PIECE: u32 = 1024;

/// What a copy is to do, and the number of the last one.
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
    /// Reads a register, given by its offset. A launch says by `copied` how many bytes it moves.
    ///
    /// # Errors
    /// [`Trap::Fault`]: no register, or a copy of what the task may not touch.
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

    /// Writes a register, given by its offset.
    ///
    /// # Errors
    /// [`Trap::Fault`]: no register, or one that cannot be written.
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

    /// What the copy launched last has written, address and bytes, if that was not asked for yet.
    pub const fn take_written(&mut self) -> Option<(u32, u32)> {
        self.written.take()
    }

    /// As if all bytes were read before any is written, in that order of addresses in which this is so.
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
        let mut buffer = [0; PIECE as usize];
        let pieces = len.div_ceil(PIECE);
        let upwards = view.normalise(to) <= view.normalise(from);
        for number in 0..pieces {
            let done = PIECE * if upwards { number } else { pieces - 1 - number };
            let piece = &mut buffer[..PIECE.min(len - done) as usize];
            view.copy_out(from + done, piece).ok_or(Cause::LoadAccess)?;
            view.copy_in(to + done, piece).ok_or(Cause::StoreAccess)?;
        }
        self.written = Some((to, len));
        Ok(())
    }
}
