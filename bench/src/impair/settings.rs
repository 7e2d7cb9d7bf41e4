//! What is asked of a relay, and how it is written on the command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::bad_value::{BadValue, bad};

/// A share of frames, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    const ALL: u32 = 1_000_000;

    /// Whether a number drawn from 0 to 999,999 is within the share.
    #[must_use]
    pub const fn takes(self, drawn: u32) -> bool {
        drawn < self.0
    }

    /// Draws a number for [`Share::takes`].
    pub fn draw(random: &mut fastrand::Rng) -> u32 {
        random.u32(..Self::ALL)
    }

    /// Whether no frame is within the share.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl FromStr for Share {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let expected = "a percentage between 0% and 100%, in steps of 0.0001%";
        let number = text.strip_suffix('%').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if part.len() > 4 || whole.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(bad(text, expected));
        }
        let digits = |text: &str| text.parse::<u32>().map_err(|_| bad(text, expected));
        let millionths = digits(whole)?.checked_mul(10_000).ok_or_else(|| bad(text, expected))?;
        let millionths = millionths.saturating_add(digits(&format!("{part:0<4}"))?);
        if millionths > Self::ALL { Err(bad(text, expected)) } else { Ok(Self(millionths)) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

/// A time of delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay(pub Duration);

impl FromStr for Delay {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let expected = "a time such as 250us, 10ms or 1s";
        let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(|| bad(text, expected))?;
        let number: u32 = text[..split].parse().map_err(|_| bad(text, expected))?;
        let unit = match &text[split..] {
            "us" => Duration::from_micros(1),
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            _ => return Err(bad(text, expected)),
        };
        Ok(Self(unit * number))
    }
}

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let expected = "bits per second, such as 500k, 100M or 10G";
        let (number, unit) = match text.strip_suffix(['k', 'M', 'G']) {
            Some(number) => (number, &text[number.len()..]),
            None => (text, ""),
        };
        let unit = match unit {
            "k" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            _ => 1,
        };
        let rate = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        rate.filter(|&rate| rate > 0).map(Self).ok_or_else(|| bad(text, expected))
    }
}

impl Rate {
    /// The time that a frame takes.
    #[must_use]
    pub fn time_of(self, bytes: usize) -> Duration {
        Duration::from_nanos((bytes as u64 * 8).saturating_mul(1_000_000_000) / self.0)
    }
}

/// Impairments of each direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Frames that are lost.
    pub loss: Share,
    /// Frames that arrive twice.
    pub duplicate: Share,
    /// Frames of which one bit is inverted, behind the Ethernet header.
    pub corrupt: Share,
    /// Frames of ECN-capable senders that are marked "congestion experienced".
    pub ecn: Share,
    /// Frames that are not delayed, and so overtake others.
    pub reorder: Share,
    /// Delay of all other frames.
    pub delay: Duration,
    /// Greatest change of the delay, in both directions. Frames keep their order.
    pub jitter: Duration,
    /// Bits per second that leave.
    pub rate: Option<Rate>,
    /// Frames that wait at most.
    pub limit: usize,
    /// What decides on frames.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Delay, Rate, Share};

    #[test]
    fn values_are_read_as_people_write_them() {
        for (text, share) in [("0", 0), ("1%", 10_000), ("0.5%", 5_000), ("100", 1_000_000), ("0.0001%", 1)] {
            assert_eq!(text.parse(), Ok(Share(share)), "{text}");
        }
        for text in ["", "%", "101%", "1.00001", "-1", "1e3", ".5", "1.2.3", "4294967295"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert_eq!("250us".parse(), Ok(Delay(Duration::from_micros(250))));
        assert_eq!("3s".parse(), Ok(Delay(Duration::from_secs(3))));
        for text in ["", "5", "ms", "5m", "-5ms", "1.5ms"] {
            assert!(text.parse::<Delay>().is_err(), "{text}");
        }
        assert_eq!(["800", "500k", "10G"].map(str::parse), [800, 500_000, 10_000_000_000].map(|rate| Ok(Rate(rate))));
        for text in ["", "0", "k", "10T", "1.5M", "99999999999999999999"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert_eq!(Rate(1_000_000).time_of(125), Duration::from_millis(1));
    }
}
