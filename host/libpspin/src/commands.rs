//! The command unit: requests of handlers to the NIC and the host. Bytes move when a command is issued; its duration is
//! simulated after its handler has ended.

use std::ops::Range;

use hpu_vm::View;
use spin_abi::command::{Command, Direction, Source, Status};
use spin_abi::put::{HEADER, Put};
use spin_pspin::hpu::command::{CommandUnit, sendable};

use crate::host::Host;
use crate::statistics::Totals;
use crate::time::{BEAT, beats};

/// Maximum number of commands per task.
const MOST_COMMANDS: usize = 1 << 16;
/// Maximum number of bytes that a task's commands may move.
const MOST_BYTES: usize = 16 << 20;
/// Maximum number of bytes waiting for the network, over all tasks.
const MOST_STAGED: usize = 256 << 20;

/// Remaining work of a command that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bytes to be sent, and the number of them that were read from host memory.
    Send(Vec<u8>, usize),
    /// Number of bytes written to host memory.
    Write(usize),
    /// Number of bytes read from host memory.
    Read(usize),
}

/// Budget that a task has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    commands: usize,
    bytes: usize,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    handle: u32,
    /// Remaining work.
    pub work: Work,
    /// Whether the handler waited for the command.
    pub waited: bool,
}

/// The command unit during one task.
pub struct Unit<'h, H> {
    host: &'h mut H,
    totals: &'h mut Totals,
    /// Bytes waiting for the network, over all tasks.
    staged: &'h mut usize,
    /// Commands in the order of issue.
    issued: Vec<Issued>,
    spent: Spent,
    /// Cycles of copies within NIC memory.
    copying: u64,
    charge: u64,
}

impl<'h, H: Host> Unit<'h, H> {
    /// Makes the unit for a task that had used `spent` before it was suspended.
    pub const fn new(host: &'h mut H, totals: &'h mut Totals, staged: &'h mut usize, spent: Spent) -> Self {
        Self { host, totals, staged, issued: Vec::new(), spent, copying: 0, charge: 0 }
    }

    /// Returns the issued commands, the budget used, and the cycles of copies within NIC memory.
    #[must_use]
    pub fn finish(self) -> (Vec<Issued>, Spent, u64) {
        (self.issued, self.spent, self.copying)
    }

    fn carry_out(&mut self, handle: u32, command: Command, view: &mut View<'_>) -> Result<Vec<Work>, Status> {
        let work = match command {
            Command::Send { fid: 0, source, length, .. } => {
                let (bytes, read) = self.send(source, length as usize, view)?;
                return Ok(vec![Work::Send(bytes, read)]);
            }
            Command::Send { destination, fid: queue_pair, source, length } => {
                return self.put(Put { destination, queue_pair, handle, length }, source, view);
            }
            Command::Dma { host, nic, length, direction: Direction::ToHost, .. } => {
                let mut bytes = vec![0; self.allowed(nic, length, view)?];
                view.copy_out(nic, &mut bytes).ok_or(Status::BadNicAddress)?;
                self.write(host, &mut bytes)
            }
            Command::Dma { host, nic, length, direction: Direction::FromHost, .. } => {
                let mut bytes = vec![0; self.allowed(nic, length, view)?];
                if !view.writable(nic, length) {
                    return Err(Status::BadNicAddress);
                }
                let work = self.read(host, &mut bytes)?;
                view.copy_in(nic, &bytes).ok_or(Status::BadNicAddress)?;
                Ok(work)
            }
            Command::HostDirect { host, data } => {
                let mut bytes = data.as_slice().to_vec();
                self.within_budget(bytes.len())?;
                self.write(host, &mut bytes)
            }
        };
        work.map(|work| vec![work])
    }

    /// Checks a copy from or to NIC memory and returns its length; a buffer is never larger than NIC memory.
    fn allowed(&self, nic: u32, length: u32, view: &View<'_>) -> Result<usize, Status> {
        view.kind_of(nic, length).ok_or(Status::BadNicAddress)?;
        self.within_budget(length as usize)
    }

    fn within_budget(&self, length: usize) -> Result<usize, Status> {
        if length <= MOST_BYTES.saturating_sub(self.spent.bytes) { Ok(length) } else { Err(Status::NoBuffer) }
    }

    /// Makes the packets of an RDMA put. Host memory is read for the first one only.
    fn put(&mut self, put: Put, source: Source, view: &View<'_>) -> Result<Vec<Work>, Status> {
        let (bytes, read) = self.send(source, put.length as usize, view)?;
        *self.staged += put.packets() as usize * HEADER as usize;
        let packet = |(header, range): ([u8; HEADER as usize], Range<u32>)| {
            let read = if range.start == 0 { read } else { 0 };
            Work::Send([&header, &bytes[range.start as usize..range.end as usize]].concat(), read)
        };
        Ok(put.split().map(packet).collect())
    }

    /// Collects the bytes to send, and returns the number of them that were read from host memory.
    fn send(&mut self, source: Source, length: usize, view: &View<'_>) -> Result<(Vec<u8>, usize), Status> {
        if length == 0 {
            return Err(Status::BadLength);
        }
        if length > MOST_STAGED.saturating_sub(*self.staged) {
            return Err(Status::NoBuffer);
        }
        let (bytes, read) = match source {
            Source::Host(address) => {
                let mut bytes = vec![0; self.within_budget(length)?];
                self.read(address, &mut bytes)?;
                (bytes, length)
            }
            Source::Nic(address) => (self.sendable(address, length, view)?, 0),
        };
        *self.staged += length;
        Ok((bytes, read))
    }

    fn sendable(&self, address: u32, length: usize, view: &View<'_>) -> Result<Vec<u8>, Status> {
        let len = u32::try_from(length).map_err(|_| Status::BadNicAddress)?;
        sendable(view, address, len)?;
        let mut bytes = vec![0; self.within_budget(length)?];
        view.copy_out(address, &mut bytes).ok_or(Status::BadNicAddress)?;
        Ok(bytes)
    }

    fn write(&mut self, address: u64, bytes: &mut [u8]) -> Result<Work, Status> {
        check_host(address, bytes.len())?;
        for (offset, len) in beats(address, bytes.len()) {
            self.totals.slave_write.count(len);
            self.host.write(address + offset as u64, &mut bytes[offset..offset + len]);
        }
        Ok(Work::Write(bytes.len()))
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<Work, Status> {
        check_host(address, bytes.len())?;
        for (offset, len) in beats(address, bytes.len()) {
            self.totals.slave_read.count(len);
            self.host.read(address + offset as u64, &mut bytes[offset..offset + len]);
        }
        Ok(Work::Read(bytes.len()))
    }
}

/// Checks that an address range of the host does not wrap.
fn check_host(address: u64, len: usize) -> Result<(), Status> {
    let last = address.checked_add((len as u64).saturating_sub(1));
    last.map(|_| ()).ok_or(Status::BadHostAddress)
}

impl<H: Host> CommandUnit for Unit<'_, H> {
    fn issue(&mut self, handle: u32, command: Command, view: &mut View<'_>) -> Status {
        if self.spent.commands == MOST_COMMANDS {
            return self.refuse(Status::NoBuffer);
        }
        match self.carry_out(handle, command, view) {
            Ok(all) => {
                for work in all {
                    let (Work::Send(_, bytes) | Work::Write(bytes) | Work::Read(bytes)) = work;
                    let sent = if let Work::Send(sent, _) = &work { sent.len() } else { 0 };
                    self.spent.bytes += bytes.max(sent);
                    self.issued.push(Issued { handle, work, waited: false });
                }
                self.spent.commands += 1;
                Status::Done
            }
            Err(status) => self.refuse(status),
        }
    }

    fn refuse(&mut self, status: Status) -> Status {
        self.totals.refused_commands += 1;
        status
    }

    fn complete(&mut self, handle: u32, _: &View<'_>) -> Option<Status> {
        if let Some(issued) = self.issued.iter_mut().rev().find(|issued| issued.handle == handle) {
            issued.waited = true;
        }
        None
    }

    fn deferred_handle(&self) -> Option<u32> {
        None
    }

    fn charge_copy(&mut self, bytes: u32) {
        let cycles = u64::from(bytes).div_ceil(BEAT as u64);
        self.copying += cycles;
        self.charge += cycles;
    }

    fn take_charge(&mut self) -> u64 {
        std::mem::take(&mut self.charge)
    }
}
