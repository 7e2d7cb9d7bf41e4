//! Reports of a child to spind.

/// A report: one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Report {
    /// The connection accepts a descriptor now.
    Ready = 1,
    /// The descriptor of a memory file, which comes with this.
    Memory = 2,
    /// A byte came without a descriptor.
    NoDescriptor = 3,
    /// The descriptor is not of a memory file.
    NotMemory = 4,
    /// The connection closed.
    Closed = 5,
}

impl Report {
    /// The report of a byte.
    pub(super) fn of(byte: u8) -> Option<Self> {
        let all = [Self::Ready, Self::Memory, Self::NoDescriptor, Self::NotMemory, Self::Closed];
        all.into_iter().find(|report| *report as u8 == byte)
    }
}
