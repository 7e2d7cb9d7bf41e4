//! The command unit: carries out what handlers ask of NIC and host memory (PsPIN paper §III-B1).
//!
//! Copies are made when the command is issued, so such a command is complete at once. The exception saves a copy: the
//! last send from the L2 packet of a frame nobody needs any more is put off until the handler ends, and then moves the
//! frame itself to the transmit ring. Whoever waits for it, or tests it, gets a copy at once.

use hpu_vm::{RegionKind, View};
use spin_abi::command::{Command, Direction, Immediate, Source, Status};
use spin_abi::counters::Counter;
use spin_abi::events::{Event, What};
use spin_abi::map::DRIVER_BASE;
use spin_abi::put::Put;
use spin_abi::regs::{FLOW_ID, TASK_FIRST};
use spin_frame::MIN_SEND;
use spin_frame::{Frame, TxQueue};

use crate::counts::Counts;
use crate::host_memory::HostMemory;
use crate::hpu::ip_view::Link;

/// How often the NIC is asked to give back transmit buffers before a send fails.
const ALLOCATE_ATTEMPTS: u32 = 100;

/// What carrying out a command counts for, in instructions of 1 ns: against the handler's instruction limit, if it has one,
/// and against what a task may ask for in all. The clock alone would let it flood the wire.
mod charge {
    /// All commands of a task.
    pub const BUDGET: u64 = 1_000_000;
    /// Any command.
    pub const COMMAND: u64 = 32;
    /// A frame's way out through the kernel takes about a microsecond.
    pub const SEND: u64 = 1_000;
    /// Asking the NIC for a buffer in vain: a system call.
    pub const ATTEMPT: u64 = 1_000;
    /// Bytes copied in the time of one instruction.
    pub const BYTES_PER_INSTRUCTION: u64 = 8;
}

/// A send of the L2 packet that is put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeferredSend {
    /// The command's.
    pub handle: u32,
    /// Address in the L2 packet window.
    pub address: u32,
    /// First byte of the frame to send.
    pub offset: u32,
    /// Bytes to send.
    pub length: u32,
}

/// Receives the events that an application is told of.
pub trait EventSink {
    /// Tells the application of an event.
    fn emit(&mut self, event: Event);
}

/// What carries out the commands of tasks. The [driver](crate::hpu::driver) knows no more of it than this.
pub trait CommandUnit {
    /// Carries out a command.
    fn issue(&mut self, handle: u32, command: Command, view: &mut View<'_>) -> Status;

    /// Puts a raw send of bytes of the packet in L2 off, when none is put off yet, unless something speaks against it: then nothing is
    /// done, and it is to be [issued](CommandUnit::issue).
    fn defer_send(&mut self, send: DeferredSend) -> bool {
        let _ = send;
        false
    }

    /// Counts copies to host memory that it was not asked for, and their bytes.
    fn copied(&mut self, copies: u64, bytes: u64) {
        let _ = (copies, bytes);
    }

    /// Counts a command that was not carried out.
    fn refuse(&mut self, status: Status) -> Status;

    /// Somebody waits for the command `handle`, or tests it. If it was put off it is carried out now; the result says how that
    /// ended.
    fn complete(&mut self, handle: u32, view: &View<'_>) -> Option<Status>;

    /// Whether the task has issued something, as far as is known.
    fn has_issued(&self) -> bool {
        true
    }

    /// The handle of the send that is put off.
    fn deferred_handle(&self) -> Option<u32>;

    /// Counts bytes that are copied within NIC memory.
    fn charge_copy(&mut self, bytes: u32);

    /// What commands count for since this was asked last, in instructions against the handler's limit.
    fn take_charge(&mut self) -> u64;
}

/// Frames that go back to the NIC together.
#[derive(Debug)]
pub struct Outbound {
    /// To be sent: at the end of the turn.
    pub transmit: Vec<Frame>,
    /// To be filled anew: at the end of a row of tasks.
    pub recycle: Vec<Frame>,
    /// Room for what is copied at a time between NIC and host memory.
    piece: Box<[u8]>,
}

impl Outbound {
    /// With room for so many of each, and for `piece` bytes that are copied at a time.
    ///
    /// # Panics
    /// When `piece` is 0.
    #[must_use]
    pub fn with_capacity(transmit: usize, recycle: usize, piece: u32) -> Self {
        assert!(piece > 0, "a copy has to get on");
        let piece = vec![0; piece as usize].into();
        Self { transmit: Vec::with_capacity(transmit), recycle: Vec::with_capacity(recycle), piece }
    }

    /// Hands over what the NIC has room for; the rest stays.
    #[inline]
    pub fn flush(&mut self, nic: &mut dyn TxQueue) {
        nic.recycle_all(&mut self.recycle);
        nic.send(&mut self.transmit);
    }
}

/// What the commands of one task may reach.
pub struct Commands<'t> {
    /// Gives and takes frames.
    pub nic: &'t mut dyn TxQueue,
    /// Frames that go to it.
    pub outbound: &'t mut Outbound,
    /// The context's host memory.
    pub host: Option<&'t HostMemory>,
    /// The context's counters.
    pub counts: &'t mut Counts,
    /// Where its application is told of copies.
    events: Option<&'t mut dyn EventSink>,
    /// Nobody needs the packet after this task: it may be moved instead of copied.
    pub may_move: bool,
    /// What the task has issued so far.
    pub budget: CommandBudget,
    /// What comes before all that is sent, of handlers that see packets without it.
    pub link: Option<Link>,
    /// What commands count for against the handler's limit and was not yet charged.
    charge: u64,
    /// Most bytes of a frame that is sent.
    max_frame: usize,
}

/// What there is to know of the commands that a task has issued.
#[derive(Clone, Copy, Debug)]
pub struct CommandBudget {
    /// The send that is put off.
    pub deferred: Option<DeferredSend>,
    /// What further commands may count for.
    instructions: u64,
    /// The NIC had no buffer for this task: it is not waited for again.
    no_buffer: bool,
}

impl CommandBudget {
    /// Of a task that begins.
    pub const FULL: Self = Self { deferred: None, instructions: charge::BUDGET, no_buffer: false };

    /// Whether it is [`CommandBudget::FULL`]: a command that leaves anything behind counts for something.
    #[inline]
    const fn is_full(&self) -> bool {
        debug_assert!(
            self.instructions != charge::BUDGET || self.deferred.is_none() && !self.no_buffer,
            "it was charged"
        );
        self.instructions == charge::BUDGET
    }

    /// Of a task that is over, and has put that off.
    #[must_use]
    pub const fn used(deferred: Option<DeferredSend>) -> Self {
        Self { deferred, instructions: 0, no_buffer: false }
    }
}

impl<'t> Commands<'t> {
    /// The commands of a task, which has `issued` some before it was parked.
    pub fn new(
        nic: &'t mut dyn TxQueue,
        outbound: &'t mut Outbound,
        host: Option<&'t HostMemory>,
        counts: &'t mut Counts,
        events: Option<&'t mut dyn EventSink>,
        may_move: bool,
        budget: CommandBudget,
    ) -> Self {
        let max_frame = nic.max_frame();
        Self { nic, outbound, host, counts, events, may_move, budget, link: None, charge: 0, max_frame }
    }

    /// Those of the next task begin.
    #[inline]
    pub const fn begin(&mut self, may_move: bool) {
        self.may_move = may_move;
        if !self.budget.is_full() {
            (self.budget, self.charge) = (CommandBudget::FULL, 0);
        }
    }

    /// Gives a packet's buffer back to the NIC: as the frame to send, if its handler wanted that, else to be filled anew.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        self.counts.add(Counter::Released, 1);
        self.release_frame(frame);
    }

    /// The same, for who counts them himself. What the task has issued is forgotten.
    #[inline(always)]
    pub fn release_frame(&mut self, frame: Frame) {
        if self.budget.is_full() {
            self.outbound.recycle.push(frame);
        } else {
            self.release_or_send(frame);
        }
    }

    #[inline(never)]
    fn release_or_send(&mut self, frame: Frame) {
        match self.budget.deferred {
            Some(send) => self.move_deferred(send, frame),
            None => self.outbound.recycle.push(frame),
        }
        (self.budget, self.charge) = (CommandBudget::FULL, 0);
    }

    /// Whether the packet's buffer is to be sent.
    #[inline]
    pub const fn sends_packet(&self) -> bool {
        self.budget.deferred.is_some()
    }

    /// Whether the task had commands, and the NIC may have no frame for the next one's.
    #[inline]
    pub fn low_on_buffers(&self) -> bool {
        !self.budget.is_full() && self.nic.low_on_buffers()
    }

    /// After the last task of a row: the NIC may have to wait for buffers.
    #[inline]
    pub fn recycle_frames(&mut self) {
        self.nic.recycle_all(&mut self.outbound.recycle);
    }

    fn move_deferred(&mut self, send: DeferredSend, mut frame: Frame) {
        if frame.trim(send.offset as usize, send.length as usize).is_err() {
            return self.outbound.recycle.push(frame);
        }
        self.counts.add(Counter::TxMoved, 1);
        stage(self.outbound, self.counts, frame);
    }

    const fn charge(&mut self, instructions: u64) {
        self.charge += instructions;
        self.budget.instructions = self.budget.instructions.saturating_sub(instructions);
    }

    /// Carries out a send that was put off by copying from its packet, which itself goes elsewhere.
    /// Returns what came of it.
    pub fn copy_deferred(&mut self, send: DeferredSend, packet: &[u8]) -> Status {
        let range = send.offset as usize..(send.offset + send.length) as usize;
        let copied = packet.get(range).ok_or(Status::BadNicAddress).and_then(|bytes| {
            let mut frame = self.frame_of(bytes.len())?;
            frame.copy_from_slice(bytes);
            stage(self.outbound, self.counts, frame);
            Ok(())
        });
        copied.map_or_else(|status| self.refuse(status), |()| Status::Done)
    }

    fn send(&mut self, source: Source, length: u32, view: &View<'_>) -> Result<Status, Status> {
        self.charge(charge::SEND);
        let before = self.link_len();
        if !(MIN_SEND..=self.max_frame).contains(&(before + length as usize)) || length == 0 {
            return Err(Status::BadLength);
        }
        if self.link.is_some_and(|link| !link.has_return()) {
            return Err(Status::Unsupported);
        }
        let address = match source {
            Source::Host(address) => return self.send_from_host(address, length),
            Source::Nic(address) => address,
        };
        sendable(view, address, length)?;
        self.copy_from_view(address, length, view)
    }

    fn copy_from_view(&mut self, address: u32, length: u32, view: &View<'_>) -> Result<Status, Status> {
        let before = self.link_len();
        let mut frame = self.frame_of(before + length as usize)?;
        if view.copy_out(address, &mut frame[before..]).is_none() {
            self.nic.recycle(frame);
            return Err(Status::BadNicAddress);
        }
        self.send_copy(frame)
    }

    /// Bytes that come before what is sent.
    fn link_len(&self) -> usize {
        self.link.as_ref().map_or(0, Link::len)
    }

    /// Stages a frame that was filled, but for what comes before.
    fn send_copy(&mut self, mut frame: Frame) -> Result<Status, Status> {
        if let Some(link) = &self.link {
            link.restore(&mut frame);
        }
        stage(self.outbound, self.counts, frame);
        Ok(Status::Done)
    }

    /// Sends the packets of an RDMA put, or none when they are more than the task may still ask for.
    fn put(&mut self, put: &Put, source: Source, view: &View<'_>) -> Result<Status, Status> {
        let cost = u64::from(put.packets()) * charge::SEND + u64::from(put.length) / charge::BYTES_PER_INSTRUCTION;
        if put.length == 0 || put.longest() as usize > self.max_frame || cost > self.budget.instructions {
            return Err(Status::BadLength);
        }
        let source = match source {
            Source::Nic(address) => PutSource::Nic(sendable(view, address, put.length).map(|()| address)?),
            Source::Host(address) => {
                let host = self.host.ok_or(Status::BadHostAddress)?;
                PutSource::Host(host, host.offset(address, put.length as usize).ok_or(Status::BadHostAddress)?)
            }
        };
        for (header, bytes) in put.split() {
            self.charge(charge::SEND);
            let mut frame = self.frame_of(header.len() + bytes.len())?;
            let (head, rest) = frame.split_at_mut(header.len());
            head.copy_from_slice(&header);
            let copied = match source {
                PutSource::Nic(address) => view.copy_out(address + bytes.start, rest).ok_or(Status::BadNicAddress),
                PutSource::Host(host, offset) => {
                    let read = host.region.read(offset + u64::from(bytes.start), rest);
                    read.map_err(|_| Status::BadHostAddress)
                }
            };
            if let Err(status) = copied {
                self.nic.recycle(frame);
                return Err(status);
            }
            stage(self.outbound, self.counts, frame);
        }
        if matches!(source, PutSource::Host(..)) {
            self.counts.add(Counter::DmaFromHostBytes, u64::from(put.length));
        }
        Ok(Status::Done)
    }

    fn send_from_host(&mut self, address: u64, length: u32) -> Result<Status, Status> {
        let host = self.host.ok_or(Status::BadHostAddress)?;
        let offset = host.offset(address, length as usize).ok_or(Status::BadHostAddress)?;
        let before = self.link_len();
        let mut frame = self.frame_of(before + length as usize)?;
        if host.region.read(offset, &mut frame[before..]).is_err() {
            self.nic.recycle(frame);
            return Err(Status::BadHostAddress);
        }
        self.counts.add(Counter::DmaFromHostBytes, u64::from(length));
        self.send_copy(frame)
    }

    /// A frame of `len` bytes. When none is free, what is to go back to the NIC does, which is asked again while it sends.
    fn frame_of(&mut self, len: usize) -> Result<Frame, Status> {
        self.charge(len as u64 / charge::BYTES_PER_INSTRUCTION);
        let attempts = if self.budget.no_buffer { 1 } else { ALLOCATE_ATTEMPTS };
        for _ in 0..attempts {
            let mut free = self.nic.allocate();
            if free.is_none() && !self.outbound.recycle.is_empty() {
                self.recycle_frames();
                free = self.nic.allocate();
            }
            if let Some(mut frame) = free {
                if frame.set_len(len).is_ok() {
                    return Ok(frame);
                }
                self.nic.recycle(frame);
                return Err(Status::BadLength);
            }
            self.charge(charge::ATTEMPT);
            self.outbound.flush(self.nic);
            if self.nic.flush_tx().is_err() {
                break;
            }
        }
        self.budget.no_buffer = true;
        Err(Status::NoBuffer)
    }

    /// Copies to host memory by way of a buffer: tasks of other threads may write meanwhile what is copied.
    fn dma_to_host(
        &mut self,
        memory: &HostMemory,
        offset: u64,
        nic: u32,
        len: u32,
        view: &View<'_>,
    ) -> Result<(), Status> {
        if !is_one_piece(&self.outbound.piece, len) {
            view.kind_of(nic, len).ok_or(Status::BadNicAddress)?;
        }
        in_pieces(&mut self.outbound.piece, len, |done, piece| {
            view.copy_out(nic + done, piece).ok_or(Status::BadNicAddress)?;
            memory.region.write(offset + u64::from(done), piece).map_err(|_| Status::BadHostAddress)
        })
    }

    fn dma(
        &mut self,
        host: u64,
        nic: u32,
        len: u32,
        direction: Direction,
        view: &mut View<'_>,
    ) -> Result<Status, Status> {
        let memory = self.host.ok_or(Status::BadHostAddress)?;
        let offset = memory.offset(host, len as usize).ok_or(Status::BadHostAddress)?;
        self.charge(u64::from(len) / charge::BYTES_PER_INSTRUCTION);
        match direction {
            Direction::ToHost => {
                let written = view.look_at_frame(nic, len, |bytes| memory.region.write(offset, bytes));
                if let Some(written) = written {
                    written.map_err(|_| Status::BadHostAddress)?;
                } else {
                    self.dma_to_host(memory, offset, nic, len, view)?;
                }
                self.counts.add(Counter::DmaToHostBytes, u64::from(len));
            }
            Direction::FromHost => {
                if !is_one_piece(&self.outbound.piece, len) && !view.writable(nic, len) {
                    return Err(Status::BadNicAddress);
                }
                in_pieces(&mut self.outbound.piece, len, |done, piece| {
                    memory.region.read(offset + u64::from(done), piece).map_err(|_| Status::BadHostAddress)?;
                    view.copy_in(nic + done, piece).ok_or(Status::BadNicAddress)
                })?;
                self.counts.add(Counter::DmaFromHostBytes, u64::from(len));
            }
        }
        self.counts.add(Counter::CommandsDma, 1);
        Ok(Status::Done)
    }

    /// Tells the application, of the message whose task this is.
    #[cold]
    fn tell(&mut self, what: What, view: &View<'_>) {
        let mut flow = [0; 4];
        // A task knows its message by a word of its description.
        let known = view.copy_out(DRIVER_BASE + FLOW_ID, &mut flow);
        debug_assert!(known.is_some(), "tasks are described");
        self.charge(charge::ATTEMPT);
        if let Some(events) = &mut self.events {
            events.emit(Event { flow: u32::from_le_bytes(flow), what });
        }
    }

    fn host_direct(&mut self, host: u64, data: &Immediate) -> Result<Status, Status> {
        let memory = self.host.ok_or(Status::BadHostAddress)?;
        let bytes = data.as_slice();
        let offset = memory.offset(host, bytes.len()).ok_or(Status::BadHostAddress)?;
        memory.region.write(offset, bytes).map_err(|_| Status::BadHostAddress)?;
        self.counts.add(Counter::CommandsHostDirect, 1);
        self.counts.add(Counter::DmaToHostBytes, bytes.len() as u64);
        Ok(Status::Done)
    }
}

impl CommandUnit for Commands<'_> {
    fn issue(&mut self, handle: u32, command: Command, view: &mut View<'_>) -> Status {
        if self.budget.instructions == 0 {
            self.counts.add(Counter::CommandErrors, 1);
            self.counts.add(Counter::CommandsOverBudget, 1);
            return Status::NoBuffer;
        }
        self.charge(charge::COMMAND);
        let result = match command {
            Command::Send { fid: 0, source, length, .. } => self.send(source, length, view),
            Command::Send { destination, fid: queue_pair, source, length } => {
                self.put(&Put { destination, queue_pair, handle, length }, source, view)
            }
            Command::Dma { host, nic, length, direction, event } => {
                let done = self.dma(host, nic, length, direction, view);
                if event && done.is_ok() {
                    self.tell(What::Copied { direction, host, length }, view);
                }
                done
            }
            Command::HostDirect { host, data } => self.host_direct(host, &data),
        };
        result.unwrap_or_else(|status| self.refuse(status))
    }

    #[inline]
    fn defer_send(&mut self, send: DeferredSend) -> bool {
        let may_leave = self.may_move && self.link.is_none() && self.budget.instructions > 0;
        let defer_send = may_leave && (MIN_SEND..=self.max_frame).contains(&(send.length as usize));
        if defer_send {
            self.charge(charge::COMMAND + charge::SEND);
            self.budget.deferred = Some(send);
        }
        defer_send
    }

    fn copied(&mut self, copies: u64, bytes: u64) {
        self.counts.add(Counter::CommandsDma, copies);
        self.counts.add(Counter::DmaToHostBytes, bytes);
    }

    fn refuse(&mut self, status: Status) -> Status {
        let cause = match status {
            Status::BadNicAddress => Counter::CommandsBadNicAddress,
            Status::BadHostAddress => Counter::CommandsBadHostAddress,
            Status::BadLength => Counter::CommandsBadLength,
            Status::NoBuffer => Counter::CommandsNoBuffer,
            Status::Malformed | Status::Unsupported | Status::Done | Status::Pending => Counter::CommandsMalformed,
        };
        self.counts.add(Counter::CommandErrors, 1);
        self.counts.add(cause, 1);
        status
    }

    fn complete(&mut self, handle: u32, view: &View<'_>) -> Option<Status> {
        let deferred = self.budget.deferred.take_if(|deferred| deferred.handle == handle)?;
        let copied = self.copy_from_view(deferred.address, deferred.length, view);
        Some(copied.unwrap_or_else(|status| self.refuse(status)))
    }

    #[inline]
    fn has_issued(&self) -> bool {
        !self.budget.is_full()
    }

    fn deferred_handle(&self) -> Option<u32> {
        self.budget.deferred.map(|deferred| deferred.handle)
    }

    fn charge_copy(&mut self, bytes: u32) {
        self.charge(charge::COMMAND + u64::from(bytes) / charge::BYTES_PER_INSTRUCTION);
    }

    fn take_charge(&mut self) -> u64 {
        std::mem::replace(&mut self.charge, 0)
    }
}

/// Where the bytes of a put are: an address in NIC memory, or an offset in host memory.
#[derive(Clone, Copy)]
enum PutSource<'h> {
    Nic(u32),
    Host(&'h HostMemory, u64),
}

/// Bytes to send are all in one kind of memory: not code, and not the task registers.
///
/// # Errors
/// [`Status::BadNicAddress`].
pub fn sendable(view: &View<'_>, address: u32, len: u32) -> Result<(), Status> {
    match view.kind_of(address, len) {
        Some((RegionKind::Code | RegionKind::Task, _)) | None => Err(Status::BadNicAddress),
        Some((RegionKind::Stack, _)) if in_task_registers(view, address, len) => Err(Status::BadNicAddress),
        Some(_) => Ok(()),
    }
}

/// Whether some of `len` bytes of the stack are the task registers that lie at its top.
#[must_use]
const fn in_task_registers(view: &View<'_>, address: u32, len: u32) -> bool {
    let registers = view.normalise(DRIVER_BASE + TASK_FIRST);
    view.normalise(address) + len > registers
}

/// Whether `len` bytes go through a buffer at once: then they move as a whole or not at all.
fn is_one_piece(buffer: &[u8], len: u32) -> bool {
    (1..=buffer.len()).contains(&(len as usize))
}

/// Moves `len` bytes through a buffer, since either side may change while they are copied: `copy` gets the bytes
/// done and room for the next ones.
fn in_pieces(
    buffer: &mut [u8],
    len: u32,
    mut copy: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
) -> Result<(), Status> {
    (0..len).step_by(buffer.len()).try_for_each(|done| {
        let piece = buffer.len().min((len - done) as usize);
        copy(done, &mut buffer[..piece])
    })
}

/// Stages a frame that a send command made, for the end of the batch, and counts it.
pub fn stage(outbound: &mut Outbound, counts: &mut Counts, frame: Frame) {
    counts.add(Counter::CommandsSend, 1);
    counts.add(Counter::TxPackets, 1);
    counts.add(Counter::TxBytes, frame.len() as u64);
    outbound.transmit.push(frame);
}
