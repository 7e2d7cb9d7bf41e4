//! Recorded commands, from the devices of guests and from native versions alike. Each send is recorded. Copies to host
//! memory are only counted, since the copied bytes can be compared.

/// Maximum number of sends in a [`Log`]; a batch issues no more. `SENDS` in `bench/native/native.h`.
pub const SENDS: usize = 4096;

/// A sent frame: `struct send` in `bench/native/native.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Send {
    /// Address of the frame, specific to the variant; see [`Send::relative`].
    pub from: u64,
    /// Length in bytes.
    pub length: u64,
}

impl Send {
    /// Replaces the address by an offset from the first packet window, which is at `packets`, so that variants can be
    /// compared.
    #[must_use]
    pub const fn relative(self, packets: u64) -> Self {
        Self { from: self.from.wrapping_sub(packets), ..self }
    }
}

/// Copies to host memory: `struct copies` in `bench/native/native.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Copies {
    /// Number of copies.
    pub count: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Copies {
    /// Adds copies.
    #[inline]
    pub const fn add(&mut self, count: u64, bytes: u64) {
        self.count += count;
        self.bytes += bytes;
    }
}

/// The commands of a batch: `struct device` in `bench/native/native.h`.
#[derive(Debug)]
#[repr(C)]
pub struct Log {
    /// Copies to host memory.
    pub copies: Copies,
    count: u64,
    sends: [Send; SENDS],
}

impl Log {
    /// Makes an empty log.
    #[must_use]
    pub fn new() -> Box<Self> {
        Box::new(Self { copies: Copies::default(), count: 0, sends: [Send::default(); SENDS] })
    }

    /// Removes all commands.
    pub const fn clear(&mut self) {
        (self.copies, self.count) = (Copies { count: 0, bytes: 0 }, 0);
    }

    /// Appends a send.
    #[inline]
    pub const fn push(&mut self, send: Send) {
        self.sends[self.count as usize % SENDS] = send;
        self.count += 1;
    }

    /// Returns the number of commands.
    #[must_use]
    #[inline]
    pub const fn commands(&self) -> u64 {
        self.copies.count + self.count
    }

    /// Returns the sends; `None` when there were more than the log can hold.
    #[must_use]
    pub fn sends(&self) -> Option<&[Send]> {
        self.sends.get(..usize::try_from(self.count).ok()?)
    }
}
