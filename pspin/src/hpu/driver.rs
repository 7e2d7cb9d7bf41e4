//! The HPU driver: the device page through which a handler issues commands and ends (PsPIN paper §III-B2).

use std::task::Poll;

use hpu_vm::{Device, Trap, View};
use spin_abi::command::{Command, Source, Status};
use spin_abi::fault::Cause;
use spin_abi::map::{DMA_BASE, DRIVER_BASE, END_OF_COMPUTATION, STDOUT_BASE, STDOUT_SIZE, public_dma};
use spin_abi::regs;

use crate::hpu::command::{CommandUnit, DeferredSend};
use crate::hpu::dma::ClusterDma;
use crate::hpu::memory::HpuId;

/// Number of commands whose status an HPU remembers.
const HISTORY: usize = 8;
/// Longest line that is printed in one piece, in bytes.
const LINE: usize = 256;

/// State of the driver page that outlives a task.
#[derive(Debug)]
pub struct DriverState {
    next_handle: u32,
    /// Handle and status of the latest commands, at index handle modulo [`HISTORY`].
    history: [(u32, Status); HISTORY],
    /// Handle of the command to test.
    tested: u32,
    /// Handle of the command whose status is read next.
    queried: u32,
    dma: ClusterDma,
    /// Number of the machine's clusters.
    clusters: u32,
    /// Prefix of each printed line: the HPU.
    tag: Box<[u8]>,
    line: Vec<u8>,
}

impl DriverState {
    /// State of an HPU that has run nothing.
    #[must_use]
    pub fn new(hpu: HpuId, clusters: u32) -> Self {
        Self {
            next_handle: 1,
            history: [(0, Status::Done); HISTORY],
            tested: 0,
            queried: 0,
            dma: ClusterDma::default(),
            clusters,
            tag: format!("[{}.{}] ", hpu.cluster, hpu.hpu).into_bytes().into(),
            line: Vec::with_capacity(LINE),
        }
    }

    /// Records that a command has ended. Does nothing if a later command has taken its place in the history.
    pub fn set_status(&mut self, handle: u32, status: Status) {
        let remembered = &mut self.history[handle as usize % HISTORY];
        if remembered.0 == handle {
            remembered.1 = status;
        }
    }

    /// Forgets the commands of earlier tasks.
    pub fn clear(&mut self) {
        (self.next_handle, self.tested, self.queried) = (1, 0, 0);
        self.history.fill((0, Status::Done));
        self.dma = ClusterDma::default();
        self.line.clear();
    }
}

/// The driver page during a batch of tasks.
pub struct Driver<'t, C> {
    state: &'t mut DriverState,
    commands: &'t mut C,
    /// Handler address and size: offsets 0 and 4 of the page.
    handler: [u32; 2],
    print: &'t mut dyn FnMut(&[u8]),
}

impl<'t, C: CommandUnit> Driver<'t, C> {
    /// A page with no command in flight.
    pub fn new(
        state: &'t mut DriverState,
        commands: &'t mut C,
        handler: [u32; 2],
        print: &'t mut dyn FnMut(&[u8]),
    ) -> Self {
        Self { state, commands, handler, print }
    }

    /// Ends the task: flushes its unfinished line and marks its deferred send as done.
    #[inline]
    pub fn finish(&mut self) {
        if let Some(handle) = self.commands.deferred_handle() {
            self.remember(handle, Status::Done);
        }
        if !self.state.line.is_empty() {
            (self.print)(&self.state.line);
            self.state.line.clear();
        }
    }

    /// Whether a task has issued no command and has nothing to [finish](Self::finish).
    #[inline]
    pub fn had_no_effects(&self) -> bool {
        !self.commands.has_issued() && self.state.line.is_empty()
    }

    /// The command unit, between two tasks.
    #[inline]
    pub const fn commands(&mut self) -> &mut C {
        self.commands
    }

    /// Forgets the commands of earlier tasks.
    #[cold]
    pub fn clear(&mut self) {
        self.state.clear();
    }

    /// Executes a deferred command now, because its handler waits for it.
    fn complete(&mut self, handle: u32, view: &mut View<'_>) {
        if let Some(status) = self.commands.complete(handle, view) {
            self.state.set_status(handle, status);
        }
    }

    /// Executes the deferred send before another one: frames leave in the order of their sends.
    fn complete_earlier(&mut self, view: &mut View<'_>) {
        if let Some(earlier) = self.commands.deferred_handle() {
            self.complete(earlier, view);
        }
    }

    /// Defers a send of bytes of the packet in L2, if the command unit allows it.
    #[inline(always)]
    fn defer_send(&mut self, handle: u32, address: u32, length: u32, view: &mut View<'_>) -> Option<Status> {
        let offset = view.in_l2_packet(address, length)?;
        self.complete_earlier(view);
        self.commands.defer_send(DeferredSend { handle, address, offset, length }).then_some(Status::Pending)
    }

    #[inline(never)]
    fn execute(&mut self, handle: u32, command: Result<Command, Status>, view: &mut View<'_>) -> Status {
        match command {
            Err(status) => self.commands.refuse(status),
            Ok(command) => {
                if matches!(command, Command::Send { .. }) {
                    self.complete_earlier(view);
                }
                self.commands.issue(handle, command, view)
            }
        }
    }

    #[inline(always)]
    fn take_handle(&mut self) -> u32 {
        let handle = self.state.next_handle;
        self.state.next_handle = handle.checked_add(1).unwrap_or(1);
        handle
    }

    #[inline]
    fn remember(&mut self, handle: u32, status: Status) {
        self.state.history[handle as usize % HISTORY] = (handle, status);
    }

    /// Status of a command. Executes a deferred one first.
    fn status(&mut self, handle: u32, view: &mut View<'_>) -> Status {
        self.complete(handle, view);
        match self.state.history[handle as usize % HISTORY] {
            (known, status) if known == handle => status,
            _ => Status::Done,
        }
    }

    /// Register of another cluster's DMA engine at an address. The own engine does that one's work: copies take no time.
    fn other_dma(&self, address: u32) -> Option<u32> {
        public_dma(address).filter(|&(cluster, _)| cluster < self.state.clusters).map(|(_, register)| register)
    }

    fn print(&mut self, byte: u8) {
        let line = &mut self.state.line;
        if line.is_empty() {
            line.extend_from_slice(&self.state.tag);
        }
        if byte != b'\n' {
            line.push(byte);
        }
        if byte == b'\n' || line.len() == LINE {
            (self.print)(line);
            line.clear();
        }
    }
}

const BAD: Trap = Trap::Fault(Cause::DeviceAccess);

impl<C: CommandUnit> Device for Driver<'_, C> {
    fn load(&mut self, view: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        let (offset, in_dma) = (address.wrapping_sub(DRIVER_BASE), address.wrapping_sub(DMA_BASE));
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(BAD);
        }
        if in_dma < regs::dma::SIZE {
            let commands = &mut *self.commands;
            return self.state.dma.load(view, in_dma, |bytes| commands.charge_copy(bytes));
        }
        match offset {
            regs::HANDLER_ADDR => Ok(self.handler[0]),
            regs::HANDLER_SIZE => Ok(self.handler[1]),
            regs::DOORBELL => Err(Trap::Finish),
            regs::COMMAND_TEST => Ok(u32::from(self.status(self.state.tested, view) != Status::Pending)),
            regs::COMMAND_STATUS => Ok(self.status(self.state.queried, view) as u32),
            _ => {
                let register = self.other_dma(address).ok_or(BAD)?;
                let commands = &mut *self.commands;
                self.state.dma.load(view, register, |bytes| commands.charge_copy(bytes))
            }
        }
    }

    fn store(&mut self, _: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        if address.wrapping_sub(STDOUT_BASE) < STDOUT_SIZE {
            self.print(value.to_le_bytes()[0]);
            return Ok(());
        }
        let (offset, in_dma) = (address.wrapping_sub(DRIVER_BASE), address.wrapping_sub(DMA_BASE));
        if width != 4 || !offset.is_multiple_of(4) {
            return Err(BAD);
        }
        if in_dma < regs::dma::SIZE {
            return self.state.dma.store(in_dma, value);
        }
        if address == END_OF_COMPUTATION {
            return Err(if value == 1 { Trap::Finish } else { BAD });
        }
        match offset {
            regs::ERROR => return Err(Trap::Report(value)),
            regs::COMMAND_TEST => self.state.tested = value,
            regs::COMMAND_STATUS => self.state.queried = value,
            _ => return self.state.dma.store(self.other_dma(address).ok_or(BAD)?, value),
        }
        Ok(())
    }

    #[inline(always)]
    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        let handle = self.take_handle();
        let status = match command {
            // The most frequent command. It is assembled again only if it has to be executed.
            Ok(Command::Send { destination, fid: 0, source: Source::Nic(address), length }) => {
                self.defer_send(handle, address, length, view).unwrap_or_else(|| {
                    let command = Command::Send { destination, fid: 0, source: Source::Nic(address), length };
                    self.execute(handle, Ok(command), view)
                })
            }
            _ => self.execute(handle, command, view),
        };
        self.remember(handle, status);
        Ok(handle)
    }

    fn copied(&mut self, copies: u64, bytes: u64) {
        // First handle of the copies that fit into the history. Handles are 1 to u32::MAX.
        let most = copies.min(HISTORY as u64);
        let before = (u64::from(self.state.next_handle) - 1 + copies - most) % u64::from(u32::MAX);
        self.state.next_handle = u32::try_from(before + 1).unwrap_or(1);
        for _ in 0..most {
            let handle = self.take_handle();
            self.remember(handle, Status::Done);
        }
        self.commands.copied(copies, bytes);
    }

    /// Waiting takes no time: a deferred command is executed at once.
    fn wait(&mut self, view: &mut View<'_>, handle: u32) -> Poll<Result<(), Trap>> {
        self.complete(handle, view);
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn take_written(&mut self) -> Option<(u32, u32)> {
        self.state.dma.take_written()
    }

    #[inline]
    fn take_charge(&mut self) -> u64 {
        self.commands.take_charge()
    }
}
