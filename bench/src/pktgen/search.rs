//! The highest rate without loss: bisection, in which a rate fails only if all of its trials fail, and trials that confirm both
//! ends of the last interval.

use serde::Serialize;

/// Outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Packets sent.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets per second that the sender reached.
    pub reached: f64,
}

/// How a search decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Rates to search between, in packets per second.
    pub bounds: [f64; 2],
    /// Width of the last interval, as a share of the rate.
    pub precision: f64,
    /// Share of packets that may be lost.
    pub tolerance: f64,
    /// Length of a trial in seconds. The trial that confirms is [`CONFIRMATION`] times as long.
    pub seconds: f64,
    /// Trials that must fail before a rate fails: other programs disturb some.
    pub trials: u32,
}

/// Length of a trial that confirms, in trials.
pub const CONFIRMATION: f64 = 3.0;
/// Share of the rate by which an unconfirmed result is lowered, in widths of the last interval.
const STEP_DOWN: f64 = 0.5;
/// Share of the asked rate that a sender must reach, or the trial says nothing about the device.
const REACHED: f64 = 0.99;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The highest rate that was confirmed, in packets per second. 0: not even the lowest passed.
    pub rate: f64,
    /// Number of trials.
    pub trials: u32,
    /// Whether the sender, not the device, set the bound.
    pub sender_bound: bool,
}

/// Searches for the highest rate. `trial` sends for some seconds at a rate.
///
/// # Errors
/// An error of `trial`.
pub fn search<E>(rules: &Rules, mut trial: impl FnMut(f64, f64) -> Result<Trial, E>) -> Result<Found, E> {
    let mut state = Search { rules, trial: &mut trial, trials: 0, sender_bound: false };
    let [mut low, mut high] = rules.bounds;
    if state.passes(high, rules.seconds)? {
        low = high;
    } else if !state.passes(low, rules.seconds)? {
        return Ok(state.found(0.0));
    }
    loop {
        [low, high] = state.bisect(low, high)?;
        // Something else may have disturbed all trials of the upper end, so it must fail again.
        if low == high || !state.passes(high, rules.seconds)? {
            break;
        }
        [low, high] = state.climb(high)?;
    }
    // A buffer hides a small excess in a short trial, so the long one decides.
    while low > rules.bounds[0] && !state.passes(low, rules.seconds * CONFIRMATION)? {
        low = (low * (1.0 - rules.precision * STEP_DOWN)).max(rules.bounds[0]);
    }
    Ok(state.found(low))
}

struct Search<'a, T> {
    rules: &'a Rules,
    trial: &'a mut T,
    trials: u32,
    sender_bound: bool,
}

impl<E, T: FnMut(f64, f64) -> Result<Trial, E>> Search<'_, T> {
    /// Whether a trial at a rate passes.
    fn passes(&mut self, rate: f64, seconds: f64) -> Result<bool, E> {
        for _ in 0..self.rules.trials {
            let trial = (self.trial)(rate, seconds)?;
            self.trials += 1;
            let slow = trial.reached < rate * REACHED;
            self.sender_bound |= slow;
            if !slow && trial.lost as f64 <= self.rules.tolerance * trial.sent as f64 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Narrows an interval of which the lower end passes and the upper fails.
    fn bisect(&mut self, mut low: f64, mut high: f64) -> Result<[f64; 2], E> {
        while high - low > self.rules.precision * high {
            let middle = f64::midpoint(low, high);
            if self.passes(middle, self.rules.seconds)? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok([low, high])
    }

    /// Goes up from a rate that passes, in doubled steps, to one that fails or to the upper bound.
    fn climb(&mut self, mut low: f64) -> Result<[f64; 2], E> {
        let mut step = self.rules.precision * low;
        loop {
            let high = (low + step).min(self.rules.bounds[1]);
            if high == low || !self.passes(high, self.rules.seconds)? {
                return Ok([low, high]);
            }
            low = high;
            step *= 2.0;
        }
    }

    fn found(&self, rate: f64) -> Found {
        Found { rate, trials: self.trials, sender_bound: self.sender_bound }
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, Rules, Trial, search};
    use std::convert::Infallible;

    /// A device on a virtual clock: it serves packets at a rate, buffers some, and loses some at random.
    struct Device {
        rate: f64,
        buffer: f64,
        loss: f64,
        /// Share of trials that another program disturbs.
        disturbed: f64,
        random: fastrand::Rng,
    }

    impl Device {
        fn trial(&mut self, rate: f64, seconds: f64) -> Trial {
            let sent = (rate * seconds) as u64;
            let overflow = ((rate - self.rate) * seconds - self.buffer).max(0.0);
            // The number of random losses has Poisson's distribution, drawn by Knuth's method. Beyond a mean of about 700 the
            // exponential is 0, and the number stays there.
            let mean = self.loss * sent as f64;
            let (mut product, mut random) = (self.random.f64(), 0.0);
            while product > (-mean).exp() {
                product *= self.random.f64();
                random += 1.0;
            }
            let burst = if self.random.f64() < self.disturbed { sent as f64 / 10.0 } else { 0.0 };
            Trial { sent, lost: (overflow + random + burst) as u64, reached: rate }
        }
    }

    #[test]
    fn a_thousand_devices_are_rated_within_one_per_cent() {
        let mut random = fastrand::Rng::with_seed(2026);
        for case in 0..1000 {
            let rate = 10_f64.powf(4.0 + 3.3 * random.f64());
            let seconds = 1.0;
            let mut device = Device {
                rate,
                // Up to what 0.6 % too much fills in the trial that confirms.
                buffer: rate * seconds * 3.0 * 0.006 * random.f64(),
                loss: 3e-5 * random.f64() * f64::from(random.u8(..2)),
                disturbed: 0.05 * f64::from(random.u8(..2)),
                random: random.fork(),
            };
            let rules = Rules { bounds: [1e3, 4e7], precision: 0.002, tolerance: 1e-3, seconds, trials: 3 };
            let found = search(&rules, |rate, seconds| Ok::<_, Infallible>(device.trial(rate, seconds)));
            let Ok(Found { rate: found, trials, sender_bound }) = found;
            let error = found / rate - 1.0;
            assert!(error.abs() < 0.01, "case {case}: {found} of {rate}, {error:+.4}");
            assert!(!sender_bound && trials < 120, "case {case}: {trials} trials");
        }
    }

    fn found(rules: &Rules, trial: impl FnMut(f64, f64) -> Trial) -> Found {
        let mut trial = trial;
        let Ok(found) = search(rules, |rate, seconds| Ok::<_, Infallible>(trial(rate, seconds)));
        found
    }

    #[test]
    fn the_bounds_are_kept_and_a_slow_sender_is_named() {
        let rules = Rules { bounds: [1e3, 1e6], precision: 0.01, tolerance: 0.0, seconds: 1.0, trials: 3 };
        let lossless = |rate: f64, _| Trial { sent: rate as u64, lost: 0, reached: rate };
        let fast = found(&rules, lossless);
        assert_eq!((fast.rate, fast.sender_bound), (1e6, false));
        let lossy = found(&rules, |rate, _| Trial { sent: rate as u64, lost: 1, reached: rate });
        assert_eq!((lossy.rate, lossy.sender_bound), (0.0, false));
        let slow = found(&rules, |rate: f64, _| Trial { sent: rate as u64, lost: 0, reached: rate.min(5e5) });
        assert!(slow.sender_bound && (slow.rate / 5e5 - 1.0).abs() < 0.021, "{slow:?}");
    }
}
