//! What the ratios should be.

use std::fmt;

use serde::Serialize;

use super::program::{Handler, Program};
use super::ratio::Ratio;
use super::round::{PINGS, ROUND_TRIP, THROUGHPUT};
use crate::peers::measure::Measure;
use crate::peers::results::Results;

const HOOK: Program = Program::InHook(Handler::UdpPingpong);
const TO_XDP_TX: [Program; 2] = [HOOK, Program::XdpTx];
const TO_USER_SPACE: [Program; 2] = [HOOK, Program::InUserSpace(Handler::UdpPingpong)];
const TO_KERNEL: [Program; 2] = [Program::InHook(Handler::IcmpEcho), Program::Kernel];

/// Which ratios are good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// This one, and greater ones.
    AtLeast(f64),
    /// This one, and lesser ones.
    AtMost(f64),
    /// Lesser ones.
    Below(f64),
}

impl Limit {
    fn allows(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(limit) => ratio >= limit,
            Self::AtMost(limit) => ratio <= limit,
            Self::Below(limit) => ratio < limit,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(out, "at least {limit}"),
            Self::AtMost(limit) => write!(out, "at most {limit}"),
            Self::Below(limit) => write!(out, "below {limit}"),
        }
    }
}

/// A ratio, and what it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Bound {
    /// What is compared.
    pub what: String,
    /// Which ratios are good. `None`: the ratio is part of another one.
    pub limit: Option<Limit>,
    /// Median of the rounds. `None`: not measured.
    pub median: Option<f64>,
    /// Lowest and highest round.
    pub spread: Option<[f64; 2]>,
    /// Whether the median is good.
    pub holds: Option<bool>,
}

impl Bound {
    fn new(what: String, limit: Option<Limit>, ratio: Option<&Ratio>) -> Self {
        let median = ratio.map(Ratio::median);
        let holds = limit.and_then(|limit| median.map(|median| limit.allows(median)));
        Self { what, limit, median, spread: ratio.map(Ratio::spread), holds }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:64}", self.what)?;
        match (self.median, self.spread) {
            (Some(median), Some([low, high])) => write!(out, " {median:6.3}  ({low:.3} to {high:.3})")?,
            _ => write!(out, " not measured")?,
        }
        match (self.limit, self.holds) {
            (Some(limit), Some(true)) => write!(out, "  {limit}: holds"),
            (Some(limit), Some(false)) => write!(out, "  {limit}: DOES NOT HOLD"),
            (Some(limit), None) => write!(out, "  {limit}"),
            (None, _) => Ok(()),
        }
    }
}

/// All ratios of the results.
#[must_use]
pub fn bounds(results: &Results) -> Vec<Bound> {
    let throughput = THROUGHPUT.map(|len| Measure::Throughput(len).name());
    let round_trips = ROUND_TRIP.map(|len| Measure::BackToBack(len).name());
    let mut all = Vec::new();
    let mut each = |programs: [Program; 2], measures: &[String], limit: Option<Limit>| {
        let ratios: Vec<_> = measures.iter().map(|measure| Ratio::new(results, programs, measure)).collect();
        let [one, other] = programs.map(Program::name);
        let what = |measure: &str| format!("{one} / {other}: {measure}");
        all.extend(measures.iter().zip(&ratios).map(|(name, ratio)| Bound::new(what(name), limit, ratio.as_ref())));
        ratios.into_iter().collect::<Option<Vec<_>>>().map(|ratios| Ratio::geometric_mean(&ratios))
    };
    let to_xdp_tx = each(TO_XDP_TX, &throughput, Some(Limit::AtLeast(0.7)));
    let to_user_space = each(TO_USER_SPACE, &throughput, None);
    each(TO_XDP_TX, &round_trips, Some(Limit::AtMost(1.15)));
    each(TO_KERNEL, &PINGS.map(|ping| ping.name()), Some(Limit::Below(1.0)));
    for (programs, mean, limit) in [(TO_XDP_TX, to_xdp_tx, 0.8), (TO_USER_SPACE, to_user_space, 6.0)] {
        let [one, other] = programs.map(Program::name);
        let what = format!("{one} / {other}: throughput, geometric mean");
        all.push(Bound::new(what, Some(Limit::AtLeast(limit)), mean.as_ref()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{Limit, bounds};
    use crate::hook::program::{Handler, Program};
    use crate::peers::measure::Figures;
    use crate::peers::results::{About, Results};

    #[test]
    fn bounds_are_of_medians() {
        let mut results = Results::here();
        for (program, figures) in
            [(Program::XdpTx, [4.0, 4.0, 4.0]), (Program::InHook(Handler::UdpPingpong), [2.0, 3.0, 4.0])]
        {
            for main in figures {
                let measure = "throughput, 64 B".to_owned();
                let about = About { program: program.name(), ours: true, measure, unit: "Mpps" };
                results.add(about, Figures { main, tail: None }, false);
            }
        }
        let bounds = bounds(&results);
        let [first, second] = [&bounds[0], &bounds[1]];
        assert_eq!((first.median, first.holds, first.spread), (Some(0.75), Some(true), Some([0.5, 1.0])));
        assert_eq!((second.median, second.holds), (None, None), "not measured");
        assert!(first.to_string().ends_with("0.750  (0.500 to 1.000)  at least 0.7: holds"), "{first}");
        assert!(!Limit::AtMost(1.0).allows(1.1) && !Limit::Below(1.0).allows(1.0) && !Limit::AtLeast(1.0).allows(0.9));
    }
}
