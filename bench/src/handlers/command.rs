//! Commands as they are recorded, by devices of guests and by native twins alike: each send; of copies to host memory how many, since what
//! was copied is there to be compared.

/// Sends a [`Log`] remembers, of a batch that issues no more: `SENDS` in `bench/native/native.h`.
pub const SENDS: usize = 4096;

/// A frame that is sent: `struct send` in `bench/native/native.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Send {
    /// Where it is: the variant's own address, see [`Send::relative`].
    pub from: u64,
    /// Bytes.
    pub length: u64,
}

impl Send {
    /// The same with an offset in the packet windows, of which the first is at `packets`, to be compared between variants.
    #[must_use]
    pub const fn relative(self, packets: u64) -> Self {
        Self { from: self.from.wrapping_sub(packets), ..self }
    }
}

/// Copies to host memory: `struct copies` in `bench/native/native.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Copies {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Copies {
    /// Counts more of them.
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
    /// Copies.
    pub copies: Copies,
    count: u64,
    sends: [Send; SENDS],
}

impl Log {
    /// An empty log.
    #[must_use]
    pub fn new() -> Box<Self> {
        Box::new(Self { copies: Copies::default(), count: 0, sends: [Send::default(); SENDS] })
    }

    /// Forgets all commands.
    pub const fn clear(&mut self) {
        (self.copies, self.count) = (Copies { count: 0, bytes: 0 }, 0);
    }

    /// Appends a send.
    #[inline]
    pub const fn push(&mut self, send: Send) {
        self.sends[self.count as usize % SENDS] = send;
        self.count += 1;
    }

    /// How many commands there were.
    #[must_use]
    #[inline]
    pub const fn commands(&self) -> u64 {
        self.copies.count + self.count
    }

    /// The sends; `None` when there were more than are remembered.
    #[must_use]
    pub fn sends(&self) -> Option<&[Send]> {
        self.sends.get(..usize::try_from(self.count).ok()?)
    }
}
