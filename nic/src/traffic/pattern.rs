//! Frames of test traffic: UDP over IPv4, with a signature in the payload.
//!
//! Packet number n has the n-th length, and each message has the next flow: both tables are repeated for ever. Packets with an
//! SLMP header belong to messages of a fixed number of packets. Without it each packet is a message.
//!
//! A flow is a source address and a source port. All other header fields are those of [`Plan`]. Checksums are right.

use std::net::Ipv4Addr;

/// Greatest number of entries in the table of flows.
pub const MAX_FLOWS: usize = 1 << 17;
/// Greatest number of entries in the table of lengths.
pub const MAX_LENGTHS: usize = 1 << 8;
/// Shortest Ethernet frame, without frame check sequence.
pub const MIN_FRAME: usize = 60;
/// Longest frame: one that fits a page with the kernel's headroom (`bpf_test_run_xdp_live`, net/bpf/test_run.c).
pub const MAX_FRAME: usize = 3072;
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 18;

/// Bytes of a frame that a sender in the kernel writes each time: all headers, in words of 8 bytes.
const CONSTANT_LEN: usize = 56;
const FLOWS_PER_ADDRESS: u32 = 1 << 14;
const FIRST_PORT: u16 = 1024;
const IP: usize = 14;
const UDP: usize = 34;
const PAYLOAD: usize = 42;
const SLMP_LEN: usize = 10;
const KEY_VALUE_LEN: usize = 12;
/// Flags of an SLMP header: host/libfpspin/src/slmp/packet.rs.
const SLMP_EOM: u16 = 0x8000;
const SLMP_SYN: u16 = 0x4000;
/// Operations of a request: handlers/kvstore.
const GET: u32 = 1;
const SET: u32 = 2;
/// Spreads the requests that set over a hundred: prime to it.
const SPREAD: u64 = 37;

/// What identifies a packet and tells when it was due. In frames its fields follow each other in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The run that sent it.
    pub run: u16,
    /// Its number, from 0.
    pub sequence: u64,
    /// When it was due, by CLOCK_MONOTONIC in nanoseconds.
    pub due: u64,
}

impl Signature {
    fn to_bytes(self) -> [u8; SIGNATURE_LEN] {
        let mut bytes = [0; SIGNATURE_LEN];
        bytes[..2].copy_from_slice(&self.run.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[10..].copy_from_slice(&self.due.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; SIGNATURE_LEN]) -> Self {
        let [a, b, rest @ ..] = *bytes;
        let (sequence, due) = rest.split_at(8);
        // Both halves of 16 bytes have 8.
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Self { run: u16::from_be_bytes([a, b]), sequence: word(sequence), due: word(due) }
    }
}

/// What follows the UDP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// The signature.
    #[default]
    None,
    /// An SLMP header.
    Slmp {
        /// Packets of a message.
        packets: u32,
    },
    /// A request to the `kvstore` handler. The key is the flow's number, the value the packet's.
    KeyValue {
        /// Requests of a hundred that set a value. The others get one.
        sets: u8,
    },
}

impl Header {
    /// Packets of a message.
    fn packets(self) -> u32 {
        match self {
            Self::Slmp { packets } => packets,
            Self::None | Self::KeyValue { .. } => 1,
        }
    }

    fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Slmp { .. } => SLMP_LEN,
            Self::KeyValue { .. } => KEY_VALUE_LEN,
        }
    }

    /// Offset of the signature in each frame.
    fn signature_at(self) -> usize {
        PAYLOAD + self.len()
    }
}

/// What the frames of a run look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Destination and source MAC address.
    pub macs: [[u8; 6]; 2],
    /// Source address of the first flows.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Destination port.
    pub port: u16,
    /// Lengths of frames, without frame check sequence.
    pub lengths: Vec<u16>,
    /// Numbers of flows.
    pub flows: Vec<u32>,
    /// What follows the UDP header.
    pub header: Header,
    /// In all signatures.
    pub run: u16,
}

/// A plan with a table that is empty or too long, or a frame that is too short or too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A table without entries, or with too many.
    #[error("{0} {1}: expected 1 to {2}")]
    Entries(&'static str, usize, usize),
    /// A frame that does not fit.
    #[error("a frame of {0} B: expected {1} to {MAX_FRAME} B, without frame check sequence")]
    Length(u16, usize),
}

/// Writes the frames of a plan, one after the other.
#[derive(Clone, Debug)]
pub struct Pattern {
    plan: Plan,
    /// The longest frame, with zeros for the varying fields.
    template: Vec<u8>,
    ip_sum: u32,
    udp_sum: u32,
    sequence: u64,
    message: u32,
    packet: u32,
    offset: u32,
    /// Indices of the next entries.
    flow: usize,
    length: usize,
}

impl Pattern {
    /// Checks a plan.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn new(plan: Plan) -> Result<Self, PlanError> {
        for (what, len, most) in [("flows", plan.flows.len(), MAX_FLOWS), ("lengths", plan.lengths.len(), MAX_LENGTHS)]
        {
            if len == 0 || len > most {
                return Err(PlanError::Entries(what, len, most));
            }
        }
        let least = (plan.header.signature_at() + SIGNATURE_LEN).max(MIN_FRAME);
        if let Some(&length) = plan.lengths.iter().find(|&&length| !(least..=MAX_FRAME).contains(&length.into())) {
            return Err(PlanError::Length(length, least));
        }
        let longest = plan.lengths.iter().copied().max().unwrap_or_default();
        let template = template(&plan, longest.into());
        // Pseudo header: destination and protocol. Its length and source vary.
        let udp_sum = sum(&plan.destination.octets()) + 17 + sum(&template[UDP..PAYLOAD]);
        let ip_sum = sum(&template[IP..UDP]);
        Ok(Self { plan, template, ip_sum, udp_sum, sequence: 0, message: 0, packet: 0, offset: 0, flow: 0, length: 0 })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Number of packets written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.sequence
    }

    /// Length of the next frame.
    #[must_use]
    pub fn next_len(&self) -> usize {
        self.plan.lengths[self.length].into()
    }

    /// Offset of the signature in each frame.
    #[must_use]
    pub fn signature_at(&self) -> usize {
        self.plan.header.signature_at()
    }

    /// The signature of a received frame, if it is of this run.
    #[must_use]
    pub fn signature(&self, frame: &[u8]) -> Option<Signature> {
        let bytes = frame.get(self.signature_at()..)?.first_chunk()?;
        Some(Signature::from_bytes(bytes)).filter(|signature| signature.run == self.plan.run)
    }

    /// Writes the next frame, which is due at that time, into `buffer`: the first [`Pattern::next_len`] bytes.
    ///
    /// # Panics
    /// When the buffer is shorter.
    pub fn write(&mut self, due: u64, buffer: &mut [u8]) -> usize {
        let len = self.next_len();
        let frame = &mut buffer[..len];
        frame.copy_from_slice(&self.template[..len]);
        let flow = self.plan.flows[self.flow];
        let source = u32::from(self.plan.source).wrapping_add(flow / FLOWS_PER_ADDRESS).to_be_bytes();
        // Below 2^14.
        let port = (FIRST_PORT + (flow % FLOWS_PER_ADDRESS) as u16).to_be_bytes();
        // At most MAX_FRAME.
        let (total, udp_len) = ((len - IP) as u16, (len - UDP) as u16);

        frame[IP + 2..IP + 4].copy_from_slice(&total.to_be_bytes());
        frame[IP + 12..IP + 16].copy_from_slice(&source);
        put_checksum(frame, IP + 10, self.ip_sum + u32::from(total) + sum(&source));

        frame[UDP..UDP + 2].copy_from_slice(&port);
        frame[UDP + 4..UDP + 6].copy_from_slice(&udp_len.to_be_bytes());
        let mut udp_sum = self.udp_sum + sum(&source) + sum(&port) + 2 * u32::from(udp_len);
        let header = match self.plan.header {
            Header::None => [0; KEY_VALUE_LEN],
            Header::Slmp { packets } => self.slmp_header(packets),
            Header::KeyValue { sets } => self.request(sets, flow),
        };
        let header_len = self.plan.header.len();
        frame[PAYLOAD..PAYLOAD + header_len].copy_from_slice(&header[..header_len]);
        udp_sum += sum(&header[..header_len]);
        let signature = Signature { run: self.plan.run, sequence: self.sequence, due }.to_bytes();
        let at = self.signature_at();
        frame[at..at + SIGNATURE_LEN].copy_from_slice(&signature);
        put_checksum(frame, UDP + 6, udp_sum + sum(&signature));
        if frame[UDP + 6..UDP + 8] == [0, 0] {
            // Zero means that there is no checksum (RFC 768).
            frame[UDP + 6..UDP + 8].fill(0xff);
        }
        self.advance(len);
        len
    }

    fn slmp_header(&self, packets: u32) -> [u8; KEY_VALUE_LEN] {
        let first = if self.packet == 0 { SLMP_SYN } else { 0 };
        let last = if self.packet + 1 >= packets { SLMP_EOM } else { 0 };
        let mut header = [0; KEY_VALUE_LEN];
        header[..2].copy_from_slice(&(first | last).to_be_bytes());
        header[2..6].copy_from_slice(&self.message.to_be_bytes());
        header[6..10].copy_from_slice(&self.offset.to_be_bytes());
        header
    }

    fn request(&self, sets: u8, key: u32) -> [u8; KEY_VALUE_LEN] {
        let operation = if self.sequence % 100 * SPREAD % 100 < u64::from(sets) { SET } else { GET };
        let mut header = [0; KEY_VALUE_LEN];
        for (to, word) in header.as_chunks_mut::<4>().0.iter_mut().zip([operation, key, self.sequence as u32]) {
            *to = word.to_be_bytes();
        }
        header
    }

    /// Goes to the next packet, after one of this length.
    fn advance(&mut self, len: usize) {
        self.sequence += 1;
        self.length = (self.length + 1) % self.plan.lengths.len();
        self.packet += 1;
        // A frame has at most MAX_FRAME bytes.
        self.offset = self.offset.wrapping_add((len - PAYLOAD - self.plan.header.len()) as u32);
        if self.packet >= self.plan.header.packets() {
            self.packet = 0;
            self.offset = 0;
            self.message = self.message.wrapping_add(1);
            self.flow = (self.flow + 1) % self.plan.flows.len();
        }
    }

    /// The longest frame, as the kernel is given it.
    pub(super) fn template(&self) -> &[u8] {
        &self.template
    }

    /// `struct settings` of bpf/traffic.bpf.c, for frames that leave by an interface of a network namespace.
    pub(super) fn settings(&self, interface: u32, namespace: u32) -> Vec<u8> {
        let plan = &self.plan;
        // Both tables are bounded.
        let (flows, lengths) = (plan.flows.len() as u32, plan.lengths.len() as u32);
        let (kind, sets) = match plan.header {
            Header::None => (0, 0),
            Header::Slmp { .. } => (1, 0),
            Header::KeyValue { sets } => (2, sets),
        };
        let words = [
            interface,
            flows,
            lengths,
            plan.header.packets(),
            kind,
            sets.into(),
            self.ip_sum,
            self.udp_sum,
            plan.source.into(),
            plan.run.into(),
            self.signature_at() as u32,
            namespace,
        ];
        let constant = &self.template[..CONSTANT_LEN];
        words.iter().flat_map(|word| word.to_ne_bytes()).chain(constant.iter().copied()).collect()
    }
}

/// A frame of the plan, with zeros for the varying fields.
fn template(plan: &Plan, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&plan.macs[0]);
    frame[6..12].copy_from_slice(&plan.macs[1]);
    frame[12] = 8;
    // Version and header length; don't fragment; time to live and UDP.
    frame[IP] = 0x45;
    frame[IP + 6] = 0x40;
    frame[IP + 8..IP + 10].copy_from_slice(&[64, 17]);
    frame[IP + 16..IP + 20].copy_from_slice(&plan.destination.octets());
    frame[UDP + 2..UDP + 4].copy_from_slice(&plan.port.to_be_bytes());
    frame
}

/// Sum of the 16-bit words of an even number of bytes. Fits for all headers.
fn sum(bytes: &[u8]) -> u32 {
    bytes.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum()
}

fn put_checksum(frame: &mut [u8], at: usize, sum: u32) {
    let once = (sum & 0xffff) + (sum >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    // 16 bits are left after two folds of a sum of fewer than 2^16 words.
    frame[at..at + 2].copy_from_slice(&(!(twice as u16)).to_be_bytes());
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Header, Pattern, Plan, PlanError};
    use std::net::Ipv4Addr;

    pub(in crate::traffic) fn plan() -> Plan {
        Plan {
            macs: [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]],
            source: Ipv4Addr::new(10, 9, 255, 254),
            destination: Ipv4Addr::new(10, 8, 0, 2),
            port: 9999,
            lengths: vec![70, 61, 1514],
            flows: vec![0, 1, 70_000, (1 << 20) - 1],
            header: Header::None,
            run: 0xfedc,
        }
    }

    #[test]
    fn signatures_are_read_back() {
        let mut pattern = Pattern::new(plan()).expect("a plan");
        let mut frame = [0; 1514];
        for sequence in 0..10 {
            let len = pattern.write(1 << 60 | sequence, &mut frame);
            let signature = pattern.signature(&frame[..len]).expect("of this run");
            assert_eq!((signature.sequence, signature.due), (sequence, 1 << 60 | sequence));
            assert_eq!(pattern.signature(&frame[..59]), None);
            frame[43] ^= 1;
            assert_eq!(pattern.signature(&frame[..len]), None, "of another run");
        }
        assert_eq!(pattern.written(), 10);
    }

    #[test]
    fn messages_have_marks_and_offsets() {
        let mut pattern =
            Pattern::new(Plan { header: Header::Slmp { packets: 3 }, lengths: vec![70, 79, 1514], ..plan() })
                .expect("a plan");
        let headers: Vec<_> = (0..6)
            .map(|due| {
                let mut frame = [0; 1514];
                pattern.write(due, &mut frame);
                let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().expect("4 bytes"));
                let [port, flags] = [34, 42].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
                (flags, word(44), word(48), port)
            })
            .collect();
        // The payloads before a packet of its message: 18 and 27 bytes.
        let message = |number, port| [(0x4000, 0), (0, 18), (0x8000, 45)].map(|(flags, at)| (flags, number, at, port));
        assert_eq!(headers, [message(0, 1024), message(1, 1025)].concat());
    }

    #[test]
    fn requests_have_keys_and_the_share_of_sets() {
        let plan = Plan { header: Header::KeyValue { sets: 5 }, lengths: vec![100], flows: vec![7, 70_000], ..plan() };
        let mut pattern = Pattern::new(plan).expect("a plan");
        let requests: Vec<_> = (0..1000)
            .map(|due| {
                let mut frame = [0; 100];
                pattern.write(due, &mut frame);
                [42, 46, 50].map(|at| u32::from_be_bytes(frame[at..at + 4].try_into().expect("4 bytes")))
            })
            .collect();
        assert_eq!(requests.iter().filter(|[operation, ..]| *operation == 2).count(), 50);
        assert!(requests.iter().all(|[operation, ..]| matches!(operation, 1 | 2)));
        for (number, [_, key, value]) in requests.iter().enumerate() {
            assert_eq!((*key, *value as usize), ([7, 70_000][number % 2], number));
        }
    }

    #[test]
    fn invalid_plans_are_refused() {
        let refused = |plan| Pattern::new(plan).expect_err("refused");
        assert_eq!(refused(Plan { flows: vec![], ..plan() }), PlanError::Entries("flows", 0, 1 << 17));
        assert_eq!(refused(Plan { lengths: vec![60; 257], ..plan() }), PlanError::Entries("lengths", 257, 256));
        let cases = [
            (59, Header::None, 60),
            (3073, Header::None, 60),
            (69, Header::Slmp { packets: 2 }, 70),
            (71, Header::KeyValue { sets: 50 }, 72),
        ];
        for (length, header, least) in cases {
            let plan = Plan { lengths: vec![100, length], header, ..plan() };
            assert_eq!(refused(plan), PlanError::Length(length, least));
        }
        assert!(Pattern::new(Plan { lengths: vec![60, 3072], ..plan() }).is_ok());
    }
}
