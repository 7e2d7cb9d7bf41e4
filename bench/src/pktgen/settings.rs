//! Lengths, flows and rates, as they are written on the command line.

use std::str::FromStr;

use fastrand::Rng;

use crate::bad_value::{BadValue, bad};

/// Lengths of frames and how often each occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths(Vec<(u16, u8)>);

/// The simple Internet mix: 7, 4 and 1 frames of 64, 594 and 1518 B with their check sequences.
const IMIX: [(u16, u8); 3] = [(60, 7), (590, 4), (1514, 1)];

impl FromStr for Lengths {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text == "imix" {
            return Ok(Self(IMIX.to_vec()));
        }
        let expected = "a length, such as 64, lengths with weights, such as 64:7,1514:1, or imix";
        let entry = |entry: &str| {
            let (length, weight) = entry.split_once(':').unwrap_or((entry, "1"));
            let weight = weight.parse().ok().filter(|&weight| weight > 0);
            length.parse().ok().zip(weight).ok_or_else(|| bad(text, expected))
        };
        text.split(',').map(entry).collect::<Result<_, _>>().map(Self)
    }
}

impl Lengths {
    /// One period of lengths, in an order that the seed decides.
    #[must_use]
    pub fn table(&self, seed: u64) -> Vec<u16> {
        let mut table: Vec<u16> =
            self.0.iter().flat_map(|&(length, weight)| std::iter::repeat_n(length, weight.into())).collect();
        Rng::with_seed(seed).shuffle(&mut table);
        table
    }

    /// Mean length of a frame.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let (bytes, frames) = self.0.iter().fold((0, 0), |(bytes, frames), &(length, weight)| {
            (bytes + u32::from(length) * u32::from(weight), frames + u32::from(weight))
        });
        f64::from(bytes) / f64::from(frames)
    }
}

/// Number of entries in a table of flows that are not equally frequent.
const ZIPF_TABLE: usize = 1 << 17;

/// One period of flows. Without `skew` each of `count` flows occurs once, in an order that the seed decides. With it the
/// frequency of the n-th flow is proportional to n^-skew.
#[must_use]
pub fn flows(count: u32, skew: Option<f64>, seed: u64) -> Vec<u32> {
    let mut random = Rng::with_seed(seed);
    let mut table: Vec<u32> = match skew {
        None => (0..count.max(1)).collect(),
        Some(skew) => {
            let weights = (1..=count.max(1)).map(|rank| f64::from(rank).powf(-skew));
            let mut all = 0.0;
            let sums: Vec<f64> = weights
                .map(|weight| {
                    all += weight;
                    all
                })
                .collect();
            // Equally spaced quantiles: frequencies are as exact as the table allows.
            let rank = |entry: usize| {
                let quantile = (entry as f64 + 0.5) / ZIPF_TABLE as f64 * all;
                sums.partition_point(|&sum| sum < quantile) as u32
            };
            (0..ZIPF_TABLE).map(rank).collect()
        }
    };
    random.shuffle(&mut table);
    table
}

/// Bytes of a frame on the wire beyond its own: preamble, check sequence, gap.
pub const WIRE_OVERHEAD: u16 = 24;

/// A rate of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As fast as the backend sends.
    Max,
    /// Packets per second.
    Packets(f64),
    /// Bits per second on the wire, with preamble, check sequence and gap.
    Bits(f64),
}

impl FromStr for Rate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let expected = "max, packets per second, such as 100k, or bits per second on the wire, such as 10Gbit";
        if text == "max" {
            return Ok(Self::Max);
        }
        let (number, bits) = match text.strip_suffix("bit") {
            Some(number) => (number, true),
            None => (text.strip_suffix("pps").unwrap_or(text), false),
        };
        let (number, unit) = match number.char_indices().last() {
            Some((at, 'k')) => (&number[..at], 1e3),
            Some((at, 'M')) => (&number[..at], 1e6),
            Some((at, 'G')) => (&number[..at], 1e9),
            _ => (number, 1.0),
        };
        let rate = number.parse::<f64>().map_err(|_| bad(text, expected))? * unit;
        if !(1.0..=1e12).contains(&rate) {
            return Err(bad(text, expected));
        }
        Ok(if bits { Self::Bits(rate) } else { Self::Packets(rate) })
    }
}

impl Rate {
    /// Packets per second of frames with this mean length. `None`: as fast as the backend sends.
    #[must_use]
    pub fn packets(self, mean_length: f64) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::Packets(rate) => Some(rate),
            Self::Bits(rate) => Some(rate / 8.0 / (mean_length + f64::from(WIRE_OVERHEAD))),
        }
    }
}

/// Bits per second on the wire of a rate of packets.
#[must_use]
pub fn wire_bits(packets_per_second: f64, mean_length: f64) -> f64 {
    packets_per_second * 8.0 * (mean_length + f64::from(WIRE_OVERHEAD))
}

#[cfg(test)]
mod tests {
    use super::{Lengths, Rate, flows, wire_bits};

    #[test]
    fn lengths() {
        let table = |text: &str| {
            let mut table = text.parse::<Lengths>().expect("lengths").table(3);
            table.sort_unstable();
            table
        };
        assert_eq!(table("64"), [64]);
        assert_eq!(table("64:2,100"), [64, 64, 100]);
        let imix = table("imix");
        assert_eq!([60, 590, 1514].map(|length| imix.iter().filter(|&&entry| entry == length).count()), [7, 4, 1]);
        let mean = "imix".parse::<Lengths>().expect("lengths").mean();
        assert!((mean - 357.83).abs() < 0.01, "{mean}");
        for bad in ["", "64:", "64:0", "64:256", "70000", "x", "64,,64", "IMIX"] {
            assert!(bad.parse::<Lengths>().is_err(), "{bad}");
        }
    }

    #[test]
    fn uniform_flows_occur_once_each() {
        let mut table = flows(1000, None, 7);
        assert_ne!(table, flows(1000, None, 8), "the seed decides on the order");
        table.sort_unstable();
        assert_eq!(table, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn skewed_flows_have_the_frequencies_of_zipf() {
        let table = flows(1000, Some(0.99), 7);
        let all: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for flow in [0, 1, 9, 99] {
            let expected = f64::from(flow + 1).powf(-0.99) / all * table.len() as f64;
            let found = table.iter().filter(|&&entry| entry == flow).count() as f64;
            assert!((found - expected).abs() <= 1.0, "flow {flow}: {found} of {expected}");
        }
        assert!(table.iter().all(|&flow| flow < 1000));
    }

    #[test]
    fn rates() {
        let rate = |text: &str| text.parse::<Rate>().expect("a rate");
        assert_eq!(rate("max").packets(60.0), None);
        assert_eq!(
            [rate("100k"), rate("2.5Mpps"), rate("7")].map(|rate| rate.packets(60.0)),
            [Some(1e5), Some(2.5e6), Some(7.0)]
        );
        // A 10-Gbit/s Ethernet carries 14.88 million of the shortest frames.
        let line = rate("10Gbit").packets(60.0).expect("bounded");
        assert!((line - 14_880_952.4).abs() < 0.1, "{line}");
        assert!((wire_bits(line, 60.0) - 1e10).abs() < 1.0);
        for bad in ["", "0", "k", "-1", "1e99", "nan", "1T", "Gbit"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
