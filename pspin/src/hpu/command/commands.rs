//! The command unit of a NIC with frames.
//!
//! A command copies its data when it is issued, so it is complete at once. One case saves the copy: the last send from the
//! L2 packet of a frame that no later task needs. That send is deferred until the handler ends, and then moves the frame
//! itself to the transmit ring. A handler that waits for a deferred send, or tests it, gets a copy at once.

use hpu_vm::View;
use spin_abi::command::{Command, Direction, Immediate, Source, Status};
use spin_abi::counters::Counter;
use spin_abi::events::{Event, What};
use spin_abi::map::DRIVER_BASE;
use spin_abi::put::Put;
use spin_abi::regs::FLOW_ID;
use spin_frame::{Frame, MIN_SEND, TxQueue};
use spin_shm::Mapping;

use crate::counts::Counts;
use crate::host_memory::HostMemory;
use crate::hpu::ip_view::Link;
use crate::hpu::send_rights::Received;

use super::access::{Access, SendGuard};
use super::budget::{self, CommandBudget};
use super::outbound::Outbound;
use super::unit::{CommandUnit, DeferredSend, EventSink, sendable};

/// Attempts to get a transmit buffer from the NIC before a send fails.
const ALLOCATE_ATTEMPTS: u32 = 100;

/// Command unit of one task at a time.
pub struct Commands<'t> {
    /// Provides and takes frames.
    pub nic: &'t mut dyn TxQueue,
    /// Frames on their way to the NIC.
    pub outbound: &'t mut Outbound,
    /// Host memory of the context.
    host: Option<&'t HostMemory>,
    guard: SendGuard<'t>,
    /// Counters of the context.
    pub counts: &'t mut Counts,
    /// Receives the events of copies.
    events: Option<&'t mut dyn EventSink>,
    /// Whether a send may move the packet's frame instead of copying: no later task needs the packet.
    pub may_move: bool,
    /// State of the task's commands.
    pub budget: CommandBudget,
    /// Link-layer header in front of everything that is sent, for handlers that see packets without it.
    pub link: Option<Link>,
    /// Cost of commands that was not yet charged against the handler's limit.
    charge: u64,
    /// Longest frame that can be sent, in bytes.
    max_frame: usize,
}

impl<'t> Commands<'t> {
    /// Commands of a task. With restricted rights it sends nothing before [`set_received`](Self::set_received). `budget` is that of a
    /// parked task that continues, or full.
    #[inline]
    pub fn new(
        nic: &'t mut dyn TxQueue,
        outbound: &'t mut Outbound,
        access: Access<'t>,
        counts: &'t mut Counts,
        events: Option<&'t mut dyn EventSink>,
        may_move: bool,
        budget: CommandBudget,
    ) -> Self {
        let max_frame = nic.max_frame();
        let (host, guard) = (access.host, SendGuard::new(access.send));
        Self { nic, outbound, host, guard, counts, events, may_move, budget, link: None, charge: 0, max_frame }
    }

    /// Begins the commands of the next task.
    #[inline]
    pub const fn begin(&mut self, may_move: bool) {
        self.may_move = may_move;
        if !self.budget.is_full() {
            (self.budget, self.charge) = (CommandBudget::FULL, 0);
        }
    }

    /// Sets the fields of the next task's packet, if the rights to send depend on them. Call it before the task runs.
    #[inline(always)]
    pub fn set_received(&mut self, read: impl FnOnce(&mut Received)) {
        self.guard.set_received(read);
    }

    /// Keeps the fields of the task's packet in its frame, for a task that has not ended.
    #[cold]
    pub fn keep_received(&self, frame: &mut Frame) {
        self.guard.keep_received(frame);
    }

    /// Releases a packet's frame: sends it if the handler deferred a send, else recycles it.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        self.counts.add(Counter::Released, 1);
        self.release_frame(frame);
    }

    /// [`release`](Commands::release) without counting. Resets the task's budget.
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

    /// Whether the task had commands and the NIC may have no frame for those of the next task.
    #[inline]
    pub fn low_on_buffers(&self) -> bool {
        !self.budget.is_full() && self.nic.low_on_buffers()
    }

    /// Returns frames to the pool. Call it after the last task of a batch: the NIC may be short of receive buffers.
    #[inline]
    pub fn recycle_frames(&mut self) {
        self.nic.recycle_all(&mut self.outbound.recycle);
    }

    fn move_deferred(&mut self, send: DeferredSend, mut frame: Frame) {
        if frame.trim(send.offset as usize, send.length as usize).is_err() {
            return self.outbound.recycle.push(frame);
        }
        match self.stage(frame) {
            Ok(()) => self.counts.add(Counter::TxMoved, 1),
            Err(status) => _ = self.refuse(status),
        }
    }

    /// Stages a frame, if the context may send it. All frames of handlers pass here.
    #[inline]
    fn stage(&mut self, frame: Frame) -> Result<(), Status> {
        if !self.guard.allows(&frame) {
            return Err(self.forbid(frame));
        }
        self.outbound.stage(self.counts, frame);
        Ok(())
    }

    /// Recycles a frame that the context may not send.
    #[cold]
    fn forbid(&mut self, frame: Frame) -> Status {
        self.nic.recycle(frame);
        Status::ForbiddenSend
    }

    #[inline]
    const fn charge(&mut self, instructions: u64) {
        self.charge += instructions;
        self.budget.charge(instructions);
    }

    /// Executes a deferred send by copying from the packet, whose frame goes elsewhere. Returns the status.
    pub fn copy_deferred(&mut self, send: DeferredSend, packet: &[u8]) -> Status {
        let range = send.offset as usize..(send.offset + send.length) as usize;
        let copied = packet.get(range).ok_or(Status::BadNicAddress).and_then(|bytes| {
            let mut frame = self.frame_of(bytes.len())?;
            frame.copy_from_slice(bytes);
            self.stage(frame)
        });
        copied.map_or_else(|status| self.refuse(status), |()| Status::Done)
    }

    fn send(&mut self, source: Source, length: u32, view: &View<'_>) -> Result<Status, Status> {
        self.charge(budget::SEND);
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

    /// Length of the link-layer header.
    fn link_len(&self) -> usize {
        self.link.as_ref().map_or(0, Link::len)
    }

    /// Stages a frame that is filled except for its link-layer header.
    fn send_copy(&mut self, mut frame: Frame) -> Result<Status, Status> {
        if let Some(link) = &self.link {
            link.restore(&mut frame);
        }
        self.stage(frame).map(|()| Status::Done)
    }

    /// Sends all packets of an RDMA put, or none when they exceed the budget.
    fn put(&mut self, put: &Put, source: Source, view: &View<'_>) -> Result<Status, Status> {
        let cost = u64::from(put.packets()) * budget::SEND + u64::from(put.length) / budget::BYTES_PER_INSTRUCTION;
        if put.length == 0 || put.longest() as usize > self.max_frame || cost > self.budget.instructions {
            return Err(Status::BadLength);
        }
        let source = match source {
            Source::Nic(address) => PutSource::Nic(sendable(view, address, put.length).map(|()| address)?),
            Source::Host(address) => {
                let (region, offset) = self.host_bytes(address, put.length)?;
                PutSource::Host(region, offset)
            }
        };
        for (header, bytes) in put.split() {
            self.charge(budget::SEND);
            let mut frame = self.frame_of(header.len() + bytes.len())?;
            let (head, rest) = frame.split_at_mut(header.len());
            head.copy_from_slice(&header);
            let copied = match source {
                PutSource::Nic(address) => view.copy_out(address + bytes.start, rest).ok_or(Status::BadNicAddress),
                PutSource::Host(region, offset) => {
                    let read = region.read(offset + u64::from(bytes.start), rest);
                    read.map_err(|_| Status::BadHostAddress)
                }
            };
            if let Err(status) = copied {
                self.nic.recycle(frame);
                return Err(status);
            }
            self.stage(frame)?;
        }
        if matches!(source, PutSource::Host(..)) {
            self.counts.add(Counter::DmaFromHostBytes, u64::from(put.length));
        }
        Ok(Status::Done)
    }

    fn send_from_host(&mut self, address: u64, length: u32) -> Result<Status, Status> {
        let (region, offset) = self.host_bytes(address, length)?;
        let before = self.link_len();
        let mut frame = self.frame_of(before + length as usize)?;
        if region.read(offset, &mut frame[before..]).is_err() {
            self.nic.recycle(frame);
            return Err(Status::BadHostAddress);
        }
        self.counts.add(Counter::DmaFromHostBytes, u64::from(length));
        self.send_copy(frame)
    }

    /// The region that has all of `len` bytes at a host address, and their offset there.
    fn host_bytes(&self, address: u64, len: u32) -> Result<(&'t Mapping, u64), Status> {
        self.host.and_then(|host| host.find(address, len as usize)).ok_or(Status::BadHostAddress)
    }

    /// A frame of `len` bytes. When none is free, flushes staged frames and tries again while the NIC sends.
    fn frame_of(&mut self, len: usize) -> Result<Frame, Status> {
        self.charge(len as u64 / budget::BYTES_PER_INSTRUCTION);
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
            self.charge(budget::ATTEMPT);
            self.outbound.flush(self.nic);
            if self.nic.flush_tx().is_err() {
                break;
            }
        }
        self.budget.no_buffer = true;
        Err(Status::NoBuffer)
    }

    /// Copies to host memory by way of a buffer: tasks of other threads may write the source meanwhile.
    fn dma_to_host(
        &mut self,
        region: &Mapping,
        offset: u64,
        nic: u32,
        len: u32,
        view: &View<'_>,
    ) -> Result<(), Status> {
        if !self.outbound.is_one_chunk(len) {
            view.kind_of(nic, len).ok_or(Status::BadNicAddress)?;
        }
        self.outbound.copy_in_chunks(len, |done, chunk| {
            view.copy_out(nic + done, chunk).ok_or(Status::BadNicAddress)?;
            region.write(offset + u64::from(done), chunk).map_err(|_| Status::BadHostAddress)
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
        let (region, offset) = self.host_bytes(host, len)?;
        self.charge(u64::from(len) / budget::BYTES_PER_INSTRUCTION);
        match direction {
            Direction::ToHost => {
                let written = view.with_frame_bytes(nic, len, |bytes| region.write(offset, bytes));
                if let Some(written) = written {
                    written.map_err(|_| Status::BadHostAddress)?;
                } else {
                    self.dma_to_host(region, offset, nic, len, view)?;
                }
                self.counts.add(Counter::DmaToHostBytes, u64::from(len));
            }
            Direction::FromHost => {
                if !self.outbound.is_one_chunk(len) && !view.writable(nic, len) {
                    return Err(Status::BadNicAddress);
                }
                self.outbound.copy_in_chunks(len, |done, chunk| {
                    region.read(offset + u64::from(done), chunk).map_err(|_| Status::BadHostAddress)?;
                    view.copy_in(nic + done, chunk).ok_or(Status::BadNicAddress)
                })?;
                self.counts.add(Counter::DmaFromHostBytes, u64::from(len));
            }
        }
        self.counts.add(Counter::CommandsDma, 1);
        Ok(Status::Done)
    }

    /// Emits an event of the task's message.
    #[cold]
    fn emit_event(&mut self, what: What, view: &View<'_>) {
        let mut flow = [0; 4];
        // The task's description has the flow id of its message.
        let known = view.copy_out(DRIVER_BASE + FLOW_ID, &mut flow);
        debug_assert!(known.is_some(), "tasks are described");
        self.charge(budget::ATTEMPT);
        if let Some(events) = &mut self.events {
            events.emit(Event { flow: u32::from_le_bytes(flow), what });
        }
    }

    fn host_direct(&mut self, host: u64, data: &Immediate) -> Result<Status, Status> {
        let bytes = data.as_slice();
        let (region, offset) = self.host_bytes(host, bytes.len() as u32)?;
        region.write(offset, bytes).map_err(|_| Status::BadHostAddress)?;
        self.counts.add(Counter::CommandsHostDirect, 1);
        self.counts.add(Counter::DmaToHostBytes, bytes.len() as u64);
        Ok(Status::Done)
    }
}

/// Source of a put: an address in NIC memory, or an offset in host memory.
#[derive(Clone, Copy)]
enum PutSource<'h> {
    Nic(u32),
    Host(&'h Mapping, u64),
}

impl CommandUnit for Commands<'_> {
    fn issue(&mut self, handle: u32, command: Command, view: &mut View<'_>) -> Status {
        if self.budget.instructions == 0 {
            self.counts.add(Counter::CommandErrors, 1);
            self.counts.add(Counter::CommandsOverBudget, 1);
            return Status::NoBuffer;
        }
        self.charge(budget::COMMAND);
        let result = match command {
            Command::Send { fid: 0, source, length, .. } => self.send(source, length, view),
            Command::Send { destination, fid: queue_pair, source, length } => {
                self.put(&Put { destination, queue_pair, handle, length }, source, view)
            }
            Command::Dma { host, nic, length, direction, event } => {
                let done = self.dma(host, nic, length, direction, view);
                if event && done.is_ok() {
                    self.emit_event(What::Copied { direction, host, length }, view);
                }
                done
            }
            Command::HostDirect { host, data } => self.host_direct(host, &data),
        };
        result.unwrap_or_else(|status| self.refuse(status))
    }

    #[inline]
    fn defer_send(&mut self, send: DeferredSend) -> bool {
        let may_move = self.may_move && self.link.is_none() && self.budget.instructions > 0;
        let deferred = may_move && (MIN_SEND..=self.max_frame).contains(&(send.length as usize));
        if deferred {
            self.charge(budget::COMMAND + budget::SEND);
            self.budget.deferred = Some(send);
        }
        deferred
    }

    #[inline]
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
            Status::ForbiddenSend => Counter::CommandsForbiddenSend,
            Status::Malformed | Status::Unsupported | Status::Done | Status::Pending => Counter::CommandsMalformed,
        };
        self.counts.add(Counter::CommandErrors, 1);
        self.counts.add(cause, 1);
        status
    }

    #[inline]
    fn complete(&mut self, handle: u32, view: &View<'_>) -> Option<Status> {
        let deferred = self.budget.deferred.take_if(|deferred| deferred.handle == handle)?;
        let copied = self.copy_from_view(deferred.address, deferred.length, view);
        Some(copied.unwrap_or_else(|status| self.refuse(status)))
    }

    #[inline]
    fn has_issued(&self) -> bool {
        !self.budget.is_full()
    }

    #[inline]
    fn deferred_handle(&self) -> Option<u32> {
        self.budget.deferred.map(|deferred| deferred.handle)
    }

    #[inline]
    fn charge_copy(&mut self, bytes: u32) {
        self.charge(budget::COMMAND + u64::from(bytes) / budget::BYTES_PER_INSTRUCTION);
    }

    #[inline]
    fn take_charge(&mut self) -> u64 {
        std::mem::replace(&mut self.charge, 0)
    }
}
