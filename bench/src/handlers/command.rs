//! Commands as they are recorded, by devices of guests and by native twins alike.

/// Commands a [`Log`] remembers, of a batch that issues no more: `COMMANDS` in `bench/native/native.h`.
pub const COMMANDS: usize = 4096;
/// Kind of a command that sends a frame.
pub const SEND: u32 = 1;
/// Kind of a command that copies NIC memory to host memory.
pub const DMA_TO_HOST: u32 = 2;

/// `struct command` in `bench/native/native.h`. Addresses are the variant's own; see [`Command::relative`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Command {
    /// [`SEND`] or [`DMA_TO_HOST`].
    pub kind: u32,
    /// Bytes.
    pub length: u32,
    /// Where they are, in a packet window.
    pub from: u64,
    /// Where in host memory they go; 0 for a send.
    pub to: u64,
}

impl Command {
    /// The same with offsets in windows and host memory for addresses, to be compared between variants.
    #[must_use]
    pub const fn relative(self, bases: Bases) -> Self {
        let to = if self.kind == SEND { self.to } else { self.to.wrapping_sub(bases.host) };
        Self { from: self.from.wrapping_sub(bases.packets), to, ..self }
    }
}

/// Addresses by which a variant's commands name memory.
#[derive(Clone, Copy, Debug)]
pub struct Bases {
    /// Of the first packet window.
    pub packets: u64,
    /// Of host memory.
    pub host: u64,
}

/// `struct device` in `bench/native/native.h`: the commands of a batch.
#[derive(Debug)]
#[repr(C)]
pub struct Log {
    count: u64,
    commands: [Command; COMMANDS],
}

impl Log {
    /// An empty log.
    #[must_use]
    pub fn new() -> Box<Self> {
        Box::new(Self { count: 0, commands: [Command::default(); COMMANDS] })
    }

    /// Forgets all commands.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Appends a command and gives its number, which is never 0.
    #[inline]
    pub const fn push(&mut self, command: Command) -> u64 {
        self.commands[self.count as usize % COMMANDS] = command;
        self.count += 1;
        self.count
    }

    /// The commands; `None` when there were more than are remembered.
    #[must_use]
    pub fn commands(&self) -> Option<&[Command]> {
        self.commands.get(..usize::try_from(self.count).ok()?)
    }
}
