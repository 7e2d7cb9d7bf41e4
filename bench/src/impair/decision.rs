//! What happens to a frame.

use std::fmt;
use std::time::Duration;

use super::settings::{Settings, Share};

/// Bytes at the start of a frame that are never corrupted: the Ethernet header, so that the frame still arrives.
const KEPT: usize = 14;

/// A direction of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first interface to the second.
    Forth,
    /// From the second interface to the first.
    Back,
}

/// An inverted bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip {
    /// Index of the byte in the frame.
    pub byte: usize,
    /// Index of the bit, 0 the lowest.
    pub bit: u8,
}

/// The impairments of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the frame is lost. All other fields then have no effect.
    pub lost: bool,
    /// Whether it leaves twice.
    pub twice: bool,
    /// The bit that is inverted.
    pub flip: Option<Flip>,
    /// Whether it is marked, if its sender is ECN-capable.
    pub mark: bool,
    /// Whether it overtakes those that are delayed.
    pub overtakes: bool,
    /// Its delay.
    pub delay: Duration,
}

impl Decision {
    /// The decision on the frame with this number, from 1, of a direction.
    #[must_use]
    pub fn on(settings: &Settings, direction: Direction, number: u64, len: usize) -> Self {
        // One stream of random numbers for each frame: what is decided on one does not depend on the others.
        let stream = number << 1 | u64::from(direction == Direction::Back);
        let mut random = fastrand::Rng::with_seed(settings.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // As many numbers are drawn for each frame, whatever is asked for: an impairment that is switched on changes no other.
        let drawn: [u32; 5] = std::array::from_fn(|_| Share::draw(&mut random));
        let [loss, duplicate, corrupt, ecn, reorder] = drawn;
        let place = random.usize(KEPT.min(len)..len.max(KEPT + 1));
        let flip = Flip { byte: place, bit: random.u8(..8) };
        let swing = random.f64().mul_add(2.0, -1.0);
        let overtakes = settings.reorder.takes(reorder);
        let jitter = settings.jitter.mul_f64(swing.abs());
        let delay = if swing < 0.0 { settings.delay.saturating_sub(jitter) } else { settings.delay + jitter };
        Self {
            lost: settings.loss.takes(loss),
            twice: settings.duplicate.takes(duplicate),
            flip: (settings.corrupt.takes(corrupt) && len > KEPT).then_some(flip),
            mark: settings.ecn.takes(ecn),
            overtakes,
            delay: if overtakes { Duration::ZERO } else { delay },
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lost {
            return f.write_str("lost");
        }
        f.write_str("sent")?;
        if self.twice {
            f.write_str(" twice")?;
        }
        if let Some(Flip { byte, bit }) = self.flip {
            write!(f, " corrupted={byte}.{bit}")?;
        }
        if self.mark {
            f.write_str(" marked")?;
        }
        if self.overtakes {
            f.write_str(" overtakes")?;
        }
        if !self.delay.is_zero() {
            write!(f, " delayed={}us", self.delay.as_micros())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Decision, Direction};
    use crate::impair::settings::Settings;

    fn share<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().expect("a value")
    }

    fn settings(seed: u64) -> Settings {
        Settings {
            loss: share("10%"),
            duplicate: share("20%"),
            corrupt: share("30%"),
            ecn: share("40%"),
            reorder: share("50%"),
            delay: Duration::from_millis(10),
            jitter: Duration::from_millis(4),
            seed,
            ..Settings::default()
        }
    }

    fn decisions(settings: &Settings, direction: Direction) -> Vec<Decision> {
        (1..=20_000).map(|number| Decision::on(settings, direction, number, 60)).collect()
    }

    #[test]
    fn shares_are_as_asked_for() {
        let all = decisions(&settings(1), Direction::Forth);
        let is: [fn(&Decision) -> bool; 5] =
            [|d| d.lost, |d| d.twice, |d| d.flip.is_some(), |d| d.mark, |d| d.overtakes];
        for (which, tenths) in is.iter().zip(1..) {
            let count = all.iter().filter(|decision| which(decision)).count();
            // Five standard deviations of a binomial distribution are below 360.
            assert!(count.abs_diff(tenths * 2000) < 360, "{count} of 20000, {tenths}0 % asked for");
        }
        let delays = all.iter().filter(|decision| !decision.overtakes).map(|decision| decision.delay.as_micros());
        assert!(delays.clone().all(|delay| (6_000..=14_000).contains(&delay)));
        assert!(delays.clone().any(|delay| delay < 6_100) && delays.clone().any(|delay| delay > 13_900));
        let flips: Vec<_> = all.iter().filter_map(|decision| decision.flip).collect();
        assert!(flips.iter().all(|flip| (14..60).contains(&flip.byte) && flip.bit < 8));
        assert!((14..60).all(|byte| flips.iter().any(|flip| flip.byte == byte)));
    }

    #[test]
    fn a_seed_decides_and_directions_differ() {
        let [one, again, other] = [1, 1, 2].map(|seed| decisions(&settings(seed), Direction::Forth));
        assert!(one == again && one != other && one != decisions(&settings(1), Direction::Back));
    }

    #[test]
    fn one_impairment_does_not_change_another() {
        let plain = Settings { loss: share("10%"), seed: 7, ..Settings::default() };
        let lost = |settings: &Settings| -> Vec<bool> {
            decisions(settings, Direction::Forth).iter().map(|decision| decision.lost).collect()
        };
        assert_eq!(lost(&plain), lost(&settings(7)));
        assert!(decisions(&plain, Direction::Forth).iter().all(|decision| {
            !decision.twice && decision.flip.is_none() && !decision.mark && decision.delay.is_zero()
        }));
    }

    #[test]
    fn the_shortest_frames_are_decided_on() {
        for len in 0..20 {
            for number in 0..1000 {
                let flip = Decision::on(&settings(3), Direction::Back, number, len).flip;
                assert!(flip.is_none_or(|flip| flip.byte >= 14 && flip.byte < len), "{len}: {flip:?}");
            }
        }
    }
}
