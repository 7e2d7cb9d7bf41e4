//! Frames built field by field with an independent checksum, so that tests do not rely on the handlers' own arithmetic.

/// MAC address of the client.
pub const CLIENT_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0c];
/// MAC address of the server.
pub const SERVER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x05];
/// IPv4 address of the client.
pub const CLIENT: [u8; 4] = [10, 1, 2, 3];
/// IPv4 address of the server.
pub const SERVER: [u8; 4] = [10, 9, 8, 7];

/// Computes the internet checksum half-word by half-word in network order (RFC 1071, section 4.1).
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes: Vec<u8> = parts.concat();
    let halves = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = halves.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// Makes an ICMP message with its checksum.
pub fn icmp(kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest);
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Makes a UDP datagram over IPv4 with its checksum.
pub fn udp(source: [u8; 4], destination: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
    let mut datagram = [ports[0].to_be_bytes(), ports[1].to_be_bytes(), length, [0, 0]].concat();
    datagram.extend(payload);
    let sum = checksum(&[&source, &destination, &[0, 17], &length, &datagram]);
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// Fields of an IPv4 packet to be built.
#[derive(Clone)]
pub struct Ipv4 {
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Protocol number.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// Flags and fragment offset.
    pub fragment: u16,
    /// Options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// Bytes after the header.
    pub payload: Vec<u8>,
}

impl Ipv4 {
    /// Makes a packet from client to server.
    pub fn new(protocol: u8, payload: Vec<u8>) -> Self {
        Self { source: CLIENT, destination: SERVER, protocol, ttl: 61, fragment: 0x4000, options: vec![], payload }
    }

    /// Returns the header with its checksum, and the payload.
    pub fn bytes(&self) -> Vec<u8> {
        let words = u8::try_from(5 + self.options.len() / 4).unwrap();
        let total = u16::try_from(usize::from(words) * 4 + self.payload.len()).unwrap();
        let mut header = vec![0x40 | words, 0];
        header.extend(total.to_be_bytes());
        header.extend([0x12, 0x34]);
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, self.protocol, 0, 0]);
        header.extend(self.source);
        header.extend(self.destination);
        header.extend(&self.options);
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header.extend(&self.payload);
        header
    }

    /// Returns the correct answer: addresses exchanged, the given payload and time to live, everything else unchanged.
    pub fn answer(&self, ttl: u8, payload: Vec<u8>) -> Self {
        Self { source: self.destination, destination: self.source, ttl, payload, ..self.clone() }
    }
}

/// Makes a frame: addresses, VLAN tags as (type, tag), EtherType, packet.
pub fn ethernet(destination: [u8; 6], source: [u8; 6], tags: &[(u16, u16)], kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [destination, source].concat();
    for (kind, tag) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(packet);
    frame
}

/// Makes a frame from client to server, untagged IPv4.
pub fn request(packet: &[u8]) -> Vec<u8> {
    ethernet(SERVER_MAC, CLIENT_MAC, &[], 0x0800, packet)
}

/// Makes a frame from server to client, untagged IPv4.
pub fn reply(packet: &[u8]) -> Vec<u8> {
    ethernet(CLIENT_MAC, SERVER_MAC, &[], 0x0800, packet)
}
