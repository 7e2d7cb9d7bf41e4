//! Bytes of a range: borrowed, shared with other threads, or the packet's.

use std::sync::Arc;

use spin_abi::map::PACKET_WINDOW;

use crate::address::{Access, Checks};
use crate::memory::{Level, PacketWindows, Window};

/// Bytes of a range.
#[derive(Debug)]
pub enum Memory<'m> {
    /// Read-only bytes.
    ReadOnly(&'m [u8]),
    /// Readable and writable bytes.
    ReadWrite(&'m mut [u8]),
    /// Bytes that others may read and write at the same time.
    Shared(Window),
    /// Bytes of the packet in L1 or L2.
    Packet(Packet),
}

/// The part of a packet window that the packet occupies.
#[derive(Debug)]
pub struct Packet {
    windows: Arc<PacketWindows>,
    level: Level,
    len: u32,
}

impl Packet {
    /// Returns the length in bytes.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Calls `read` with `len` bytes at `offset` of the frame, if they are not copied to the window.
    #[inline]
    pub(super) fn with_frame_bytes<R>(&self, offset: u32, len: u32, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.windows.with_frame_bytes(self.level, offset, len as usize, read)
    }

    /// The window's bytes, with the packet in them, if `len` of them at `offset` may be accessed.
    pub(super) fn touch(&self, offset: u32, len: u32, checks: Checks, access: Access) -> Option<&Window> {
        let room = if checks == Checks::Exact { self.len } else { PACKET_WINDOW };
        if len > room.checked_sub(offset)? {
            return None;
        }
        self.windows.touch(self.level, access)
    }
}

impl<'m> Memory<'m> {
    /// Makes a packet window of full length.
    pub(crate) const fn packet(windows: Arc<PacketWindows>, level: Level) -> Self {
        Self::Packet(Packet { windows, level, len: PACKET_WINDOW })
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::ReadOnly(bytes) => bytes.len(),
            Self::ReadWrite(bytes) => bytes.len(),
            Self::Shared(window) => window.len() as usize,
            Self::Packet(packet) => packet.len(),
        }
    }

    /// Loads `N` bytes at `offset`, which wraps below the first byte.
    #[inline(always)]
    pub(super) fn load<const N: usize>(&self, offset: u32, checks: Checks) -> Option<[u8; N]> {
        match self {
            Self::ReadOnly(bytes) => bytes.get(offset as usize..)?.first_chunk().copied(),
            Self::ReadWrite(bytes) => bytes.get(offset as usize..)?.first_chunk().copied(),
            Self::Shared(window) => window.load(offset, checks),
            Self::Packet(packet) => packet.touch(offset, N as u32, checks, Access::Read)?.load(offset, checks),
        }
    }

    #[inline(always)]
    pub(super) fn store<const N: usize>(&mut self, offset: u32, value: [u8; N], checks: Checks) -> Option<()> {
        match self {
            Self::ReadOnly(_) => None,
            Self::ReadWrite(bytes) => {
                *bytes.get_mut(offset as usize..)?.first_chunk_mut()? = value;
                Some(())
            }
            Self::Shared(window) => window.store(offset, value, checks),
            Self::Packet(packet) => packet.touch(offset, N as u32, checks, Access::Write)?.store(offset, value, checks),
        }
    }

    /// Whether `len` bytes at `offset` may be written.
    pub(super) fn writable(&self, offset: u32, len: u32, checks: Checks) -> bool {
        match self {
            Self::ReadOnly(_) => false,
            Self::ReadWrite(bytes) => bytes.get(offset as usize..).is_some_and(|rest| len as usize <= rest.len()),
            Self::Shared(window) => window.writable(offset, len, checks),
            Self::Packet(packet) => packet.touch(offset, len, checks, Access::Write).is_some(),
        }
    }

    pub(super) fn load_word(&self, offset: u32, checks: Checks) -> Option<u32> {
        match self {
            Self::Shared(window) => window.load_word(offset, checks),
            Self::Packet(packet) => packet.touch(offset, 4, checks, Access::Read)?.load_word(offset, checks),
            _ => self.load(offset, checks).map(u32::from_le_bytes),
        }
    }

    pub(super) fn update_word(&mut self, offset: u32, checks: Checks, new: &impl Fn(u32) -> u32) -> Option<u32> {
        match self {
            Self::Shared(window) => window.update_word(offset, checks, new),
            Self::Packet(packet) => packet.touch(offset, 4, checks, Access::Write)?.update_word(offset, checks, new),
            _ => {
                let old = self.load(offset, checks).map(u32::from_le_bytes)?;
                self.store(offset, new(old).to_le_bytes(), checks)?;
                Some(old)
            }
        }
    }

    pub(super) fn exchange_word(&mut self, offset: u32, checks: Checks, expected: u32, new: u32) -> Option<bool> {
        match self {
            Self::Shared(window) => window.exchange_word(offset, checks, expected, new),
            Self::Packet(packet) => {
                packet.touch(offset, 4, checks, Access::Write)?.exchange_word(offset, checks, expected, new)
            }
            _ => {
                let old = self.update_word(offset, checks, &|old| if old == expected { new } else { old })?;
                Some(old == expected)
            }
        }
    }

    #[inline]
    pub(super) fn copy_out(&self, offset: u32, to: &mut [u8]) -> Option<()> {
        let bytes = match self {
            Self::ReadOnly(bytes) => *bytes,
            Self::ReadWrite(bytes) => &**bytes,
            Self::Shared(window) => return window.copy_out(offset, to),
            Self::Packet(Packet { windows, level, .. }) => return windows.copy_out(*level, offset, to),
        };
        to.copy_from_slice(bytes.get(offset as usize..)?.get(..to.len())?);
        Some(())
    }

    pub(super) fn copy_in(&mut self, offset: u32, from: &[u8]) -> Option<()> {
        match self {
            Self::ReadOnly(_) => return None,
            Self::ReadWrite(bytes) => {
                bytes.get_mut(offset as usize..)?.get_mut(..from.len())?.copy_from_slice(from);
            }
            Self::Shared(window) => window.copy_in(offset, from)?,
            Self::Packet(Packet { windows, level, .. }) => {
                windows.touch(*level, Access::Write)?.copy_in(offset, from)?;
            }
        }
        Some(())
    }

    /// Sets the length, up to the first one. The length of borrowed bytes is fixed.
    #[inline]
    pub(super) fn set_len(&mut self, len: u32) -> Option<()> {
        match self {
            Self::ReadOnly(_) | Self::ReadWrite(_) => None,
            Self::Shared(window) => window.set_len(len),
            Self::Packet(packet) => {
                packet.len = Some(len).filter(|&len| len <= PACKET_WINDOW)?;
                Some(())
            }
        }
    }
}
