//! Packet trace files: thirteen numbers per line, and a second file with the packets' bytes one after the other.
//!
//! ```text
//! msgid,hh,hh_size,ph,ph_size,th,th_size,hmem,hmem_size,pkt_size,xfer_size,eom,wait
//! ```

use crate::conf::PCIE_START;
use crate::ec::Ec;
use crate::{CLUSTERS, MACHINE, MAX_PACKET};

/// Host memory of a trace's contexts in bytes.
const HOST_MEM: u32 = 1 << 30;
const FIELDS: [&str; 13] = [
    "msgid",
    "hh",
    "hh_size",
    "ph",
    "ph_size",
    "th",
    "th_size",
    "hmem",
    "hmem_size",
    "pkt_size",
    "xfer_size",
    "eom",
    "wait",
];

/// A line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Line number, from 1.
    pub number: usize,
    /// Message of the packet.
    pub msgid: u32,
    /// Context of the packet.
    pub ec: Ec,
    /// Length of the packet in bytes.
    pub len: usize,
    /// Number of bytes copied to L1.
    pub l1_len: usize,
    /// Whether the packet is the last of its message.
    pub eom: bool,
    /// Cycles until the next packet.
    pub wait_cycles: u32,
}

/// Reason why a trace is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line does not have thirteen fields.
    #[error("line {line}: {found} fields, expected {}: {}", FIELDS.len(), FIELDS.join(","))]
    Fields {
        /// Line number.
        line: usize,
        /// Number of fields found.
        found: usize,
    },
    /// A field is not a number below 2^32.
    #[error("line {line}: {field} is {value:?}, not a number below 2^32")]
    Number {
        /// Line number.
        line: usize,
        /// Name of the field.
        field: &'static str,
        /// Text found.
        value: String,
    },
    /// A packet is too long.
    #[error("line {line}: a packet of {len} bytes; the longest has {MAX_PACKET}")]
    Length {
        /// Line number.
        line: usize,
        /// Length in bytes.
        len: u32,
    },
    /// The data file ends early.
    #[error("line {line}: the packets' bytes end {missing} bytes before its end")]
    Data {
        /// Line number.
        line: usize,
        /// Number of missing bytes.
        missing: usize,
    },
}

/// Parses the lines of a trace; empty lines are ignored.
///
/// # Errors
/// [`TraceError`]: the first error found.
pub fn parse(text: &[u8]) -> Result<Vec<Line>, TraceError> {
    let lines = (1..).zip(text.split(|byte| *byte == b'\n'));
    let lines = lines.map(|(number, line)| (number, line.trim_ascii())).filter(|(_, line)| !line.is_empty());
    lines.map(|(number, line)| parse_line(number, line)).collect()
}

fn parse_line(line: usize, text: &[u8]) -> Result<Line, TraceError> {
    let found = text.split(|byte| *byte == b',').count();
    if found != FIELDS.len() {
        return Err(TraceError::Fields { line, found });
    }
    let mut numbers = [0; FIELDS.len()];
    for ((number, field), text) in numbers.iter_mut().zip(FIELDS).zip(text.split(|byte| *byte == b',')) {
        *number = parse_number(text).ok_or_else(|| {
            let value = text.iter().take(40).map(|byte| char::from(*byte)).collect();
            TraceError::Number { line, field, value }
        })?;
    }
    let [msgid, hh_addr, hh_size, ph_addr, ph_size, th_addr, th_size, hmem, hmem_size, len, l1_len, eom, wait_cycles] =
        numbers;
    if len as usize > MAX_PACKET {
        return Err(TraceError::Length { line, len });
    }
    let ec = Ec {
        handler_mem_addr: hmem,
        handler_mem_size: hmem_size,
        host_mem_addr: PCIE_START,
        host_mem_size: HOST_MEM,
        hh_addr,
        hh_size,
        ph_addr,
        ph_size,
        th_addr,
        th_size,
        scratchpad_addr: [0; CLUSTERS],
        scratchpad_size: [MACHINE.scratchpad_size(); CLUSTERS],
    };
    Ok(Line { number: line, msgid, ec, len: len as usize, l1_len: l1_len as usize, eom: eom != 0, wait_cycles })
}

fn parse_number(text: &[u8]) -> Option<u32> {
    let text = str::from_utf8(text.trim_ascii()).ok()?;
    // Rust's parser accepts a leading `+`; this format does not.
    text.parse().ok().filter(|_| text.as_bytes()[0].is_ascii_digit())
}

/// Returns the bytes of each line's packet.
///
/// # Errors
/// [`TraceError::Data`].
pub fn packets<'d>(lines: &[Line], mut data: &'d [u8]) -> Result<Vec<&'d [u8]>, TraceError> {
    let take = |line: &Line| {
        let missing = line.len.saturating_sub(data.len());
        let (packet, rest) = data.split_at_checked(line.len).ok_or(TraceError::Data { line: line.number, missing })?;
        data = rest;
        Ok(packet)
    };
    lines.iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{FIELDS, Line, TraceError, packets, parse};

    const TRACE: &[u8] = b"3,0,0,486539264,64,0,0,472907776,4096,128,64,0,10\r\n\n4,0,0,486539264,64,0,0,0,0,2,2,1,0";

    #[test]
    fn lines_are_packets() {
        let lines = parse(TRACE).expect("a trace");
        let [first, second] = &lines[..] else { panic!("two lines") };
        assert_eq!((first.number, first.msgid, first.len, first.l1_len), (1, 3, 128, 64));
        assert_eq!((first.eom, first.wait_cycles, second.number, second.eom), (false, 10, 3, true));
        let (ph, memory, host) = (first.ec.ph_addr, first.ec.handler_mem_addr, first.ec.host_mem_addr);
        assert_eq!((ph, memory, host), (0x1d00_0000, 0x1c30_0000, 0x1000_0000_0000_0000));
        let data: Vec<u8> = (0..130).collect();
        let packets = packets(&lines, &data).expect("as many bytes");
        assert_eq!(packets, [&data[..128], &data[128..]]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(parse(b"\n1,2,3"), Err(TraceError::Fields { line: 2, found: 3 }));
        let with = |value: &str| {
            let mut fields = ["0"; FIELDS.len()];
            fields[4] = value;
            parse(fields.join(",").as_bytes()).unwrap_err().to_string()
        };
        for value in ["", "x", "-1", "+1", "1.5", "4294967296", "0x10", "1 2", "\u{e4}"] {
            assert!(with(value).starts_with("line 1: ph_size is "), "{value:?}");
        }
        assert_eq!(parse(b"0,0,0,0,0,0,0,0,0,4097,0,0,0"), Err(TraceError::Length { line: 1, len: 4097 }));
        let lines = parse(TRACE).expect("a trace");
        assert_eq!(packets(&lines, &[0; 129]), Err(TraceError::Data { line: 3, missing: 1 }));
    }

    fn line() -> impl Strategy<Value = String> {
        proptest::collection::vec(any::<u32>(), FIELDS.len()).prop_map(|mut numbers| {
            numbers[9] %= 4097;
            numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
        })
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_trace_or_an_error(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&text);
        }

        #[test]
        fn what_looks_like_a_trace_does_not_panic(text in "[0-9,\\n \\-x]{0,200}", data in proptest::collection::vec(any::<u8>(), 0..50)) {
            if let Ok(lines) = parse(text.as_bytes()) {
                let _ = packets(&lines, &data);
            }
        }

        #[test]
        fn every_line_of_numbers_is_read(lines in proptest::collection::vec(line(), 0..5)) {
            let parsed = parse(lines.join("\n").as_bytes()).expect("numbers");
            let again: Vec<String> = parsed.iter().map(|line| {
                let Line { msgid, ec, len, l1_len, eom, wait_cycles, .. } = line.clone();
                let eom = u32::from(eom);
                let [a, b, c, d, e, f] = [ec.hh_addr, ec.hh_size, ec.ph_addr, ec.ph_size, ec.th_addr, ec.th_size];
                let (g, h) = (ec.handler_mem_addr, ec.handler_mem_size);
                format!("{msgid},{a},{b},{c},{d},{e},{f},{g},{h},{len},{l1_len},{eom},{wait_cycles}")
            }).collect();
            let expected: Vec<String> = lines.iter().map(|line| {
                let mut fields: Vec<&str> = line.split(',').collect();
                if fields[11] != "0" { fields[11] = "1" }
                fields.join(",")
            }).collect();
            prop_assert_eq!(again, expected);
        }
    }
}
