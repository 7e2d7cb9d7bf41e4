//! Backends that send and receive frames on an interface: packet sockets, which work everywhere, and AF_XDP.

use std::io;

use spin_abi::rules::{Base, END_OF_RULE, RuleSet, Test};
use spin_nic::frame::CHUNK;
use spin_nic::{AfXdp, AfXdpConfig, Frame, NicError, Queue, TxQueue};

use crate::raw::PacketSocket;

/// Frames that are sent or received between two looks at the clock.
pub const BATCH: usize = 64;

/// Error of a backend.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// An error of a packet socket.
    #[error("packet socket: {0}")]
    Packet(#[from] io::Error),
    /// An error of an AF_XDP socket.
    #[error(transparent)]
    Nic(#[from] NicError),
}

/// Sends and receives frames. Never waits.
pub trait Port {
    /// Sends at most `count` frames, at most [`BATCH`], which `write` makes in the given buffer. Returns how many were made. Those are
    /// sent by this call or the next ones.
    ///
    /// # Errors
    /// The interface is gone or down.
    fn send(&mut self, count: usize, write: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, PortError>;

    /// Hands at most [`BATCH`] received frames to `see`. Returns how many.
    ///
    /// # Errors
    /// The interface is gone.
    fn receive(&mut self, see: &mut dyn FnMut(&[u8])) -> Result<usize, PortError>;

    /// Sends what remains of earlier calls of `send`. Returns the number of frames that remain.
    ///
    /// # Errors
    /// The interface is gone or down.
    fn flush(&mut self) -> Result<usize, PortError>;

    /// Received frames that the kernel dropped, because they were not taken in time.
    ///
    /// # Errors
    /// The kernel refuses to tell.
    fn missed(&mut self) -> Result<u64, PortError>;
}

/// A packet socket.
pub struct PacketPort {
    socket: PacketSocket,
    buffer: Vec<u8>,
    /// Length of the frame in `buffer` that the kernel has not taken yet.
    unsent: Option<usize>,
    missed: u64,
}

impl PacketPort {
    /// Opens an interface.
    ///
    /// # Errors
    /// No such interface, or no CAP_NET_RAW.
    pub fn open(interface: &str) -> Result<Self, PortError> {
        let socket = PacketSocket::open_both(interface)
            .map_err(|error| io::Error::new(error.kind(), format!("{interface}: {error}; it needs CAP_NET_RAW")))?;
        Ok(Self { socket, buffer: vec![0; 1 << 16], unsent: None, missed: 0 })
    }

    /// Sends the frame in the buffer. Returns whether the kernel took it.
    fn send_unsent(&mut self) -> Result<bool, PortError> {
        let Some(len) = self.unsent else { return Ok(true) };
        match self.socket.send(&self.buffer[..len]) {
            Ok(()) => {
                self.unsent = None;
                Ok(true)
            }
            // The queue of the socket or of the device is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Port for PacketPort {
    fn send(&mut self, count: usize, write: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, PortError> {
        for made in 0..count.min(BATCH) {
            if !self.send_unsent()? {
                return Ok(made);
            }
            self.unsent = Some(write(&mut self.buffer));
        }
        self.send_unsent()?;
        Ok(count.min(BATCH))
    }

    fn receive(&mut self, see: &mut dyn FnMut(&[u8])) -> Result<usize, PortError> {
        let mut buffer = [0; 1 << 11];
        for count in 0..BATCH {
            let Some(len) = self.socket.receive(&mut buffer)? else { return Ok(count) };
            see(&buffer[..len.min(1 << 11)]);
        }
        Ok(BATCH)
    }

    fn flush(&mut self) -> Result<usize, PortError> {
        Ok(usize::from(!self.send_unsent()?))
    }

    fn missed(&mut self) -> Result<u64, PortError> {
        self.missed += u64::from(self.socket.dropped()?);
        Ok(self.missed)
    }
}

/// An AF_XDP socket on each queue of an interface.
pub struct XdpPort {
    nic: AfXdp,
    batch: Vec<Frame>,
    received: Vec<Frame>,
}

impl XdpPort {
    /// Opens an interface. `port`: UDP datagrams to or from this port are received, all other frames go to the kernel.
    ///
    /// # Errors
    /// See [`AfXdp::open`].
    pub fn open(interface: &str, port: u16) -> Result<Self, PortError> {
        Self::open_for(interface, &udp_rules(port))
    }

    /// Opens an interface for the frames that rules match. All other frames go to the kernel.
    ///
    /// # Errors
    /// See [`AfXdp::open`].
    pub fn open_for(interface: &str, rules: &[Test]) -> Result<Self, PortError> {
        let nic = AfXdp::open(&AfXdpConfig::new(interface))?;
        nic.steering().set_rules(&RuleSet::list(rules))?;
        Ok(Self { nic, batch: Vec::with_capacity(2 * BATCH), received: Vec::with_capacity(BATCH) })
    }
}

/// Rules for IPv4 UDP datagrams to or from a port, for [`spin_nic::FlowSteering::set_rules`].
#[must_use]
pub fn udp_rules(port: u16) -> [Test; 4] {
    let udp = Test { base: Base::Kind, flags: 0, offset: 0, mask: u32::MAX, min: 0x0800_0411, max: 0x0800_0411 };
    let ports =
        |mask: u32, port: u32| Test { base: Base::L4, flags: END_OF_RULE, offset: 0, mask, min: port, max: port };
    let port = u32::from(port);
    [udp, ports(0xffff, port), udp, ports(0xffff_0000, port << 16)]
}

/// The rule for IPv4 packets with ICMP.
pub const ICMP_RULE: Test =
    Test { base: Base::Kind, flags: END_OF_RULE, offset: 0, mask: u32::MAX, min: 0x0800_0401, max: 0x0800_0401 };

impl Port for XdpPort {
    fn send(&mut self, count: usize, write: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, PortError> {
        let mut made = 0;
        while made < count.min(BATCH) && self.batch.len() < BATCH {
            let Some(mut frame) = self.nic.allocate() else { break };
            let capacity = frame.capacity().min(CHUNK);
            // Within its capacity both times.
            frame.set_len(capacity).expect("its capacity");
            let len = write(&mut frame);
            frame.set_len(len).expect("within the buffer");
            self.batch.push(frame);
            made += 1;
        }
        self.flush()?;
        Ok(made)
    }

    fn receive(&mut self, see: &mut dyn FnMut(&[u8])) -> Result<usize, PortError> {
        let count = self.nic.receive(&mut self.received, BATCH);
        for frame in self.received.drain(..) {
            see(&frame);
            self.nic.recycle(frame);
        }
        if count > 0 {
            self.nic.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<usize, PortError> {
        if !self.batch.is_empty() {
            self.nic.send(&mut self.batch);
        }
        self.nic.flush()?;
        Ok(self.batch.len() + self.nic.pending())
    }

    fn missed(&mut self) -> Result<u64, PortError> {
        let lost = ["rx_ring_full", "rx_dropped"];
        Ok(self.nic.counters().iter().filter(|(name, _)| lost.contains(name)).map(|(_, count)| count).sum())
    }
}
