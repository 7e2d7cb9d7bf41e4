//! Rates of counters: their differences over the measured time.

use libspin::{Counters, Stats};
use serde_json::{Map, Value, json};

use crate::json::{context_counters, counters};

/// A set of counters that begin together.
#[derive(Clone, Copy)]
pub enum Section {
    Engine,
    Nic,
    /// A thread, by its place in [`Stats::threads`].
    Thread(usize),
    /// A context, by id.
    Context(u32),
}

impl Section {
    /// The section's counters, zeros included. `None`: there is no such section.
    fn of(self, stats: &Stats) -> Option<Counters> {
        match self {
            Self::Engine => Some(stats.engine.clone()),
            Self::Nic => Some(stats.nic_counters.clone()),
            Self::Thread(index) => stats.threads.get(index).map(|thread| thread.counters.clone()),
            Self::Context(id) => stats.contexts.iter().find(|context| context.context == id).map(context_counters),
        }
    }
}

/// The unit of a rate.
pub fn unit(counter: &str) -> &'static str {
    if counter.ends_with(BYTES) {
        "bit/s"
    } else if counter.ends_with("_ns") {
        "ns/s"
    } else {
        "/s"
    }
}

const BYTES: &str = "_bytes";

/// Two readings of all counters.
pub struct Interval<'s> {
    pub before: &'s Stats,
    pub now: &'s Stats,
    /// The time between them, in seconds.
    pub seconds: f64,
}

impl Interval<'_> {
    /// Rates of a section by counter, in the counter's [`unit`]. `None` if the section is new, or if a counter fell: the counts
    /// then began again at an unknown time.
    pub fn rates(&self, section: Section) -> Option<Vec<(String, f64)>> {
        let (before, now) = (section.of(self.before)?, section.of(self.now)?);
        if before.iter().any(|(name, value)| now.named(name).unwrap_or(0) < value) {
            return None;
        }
        let rate = |(name, value): (&str, u64)| {
            let each = if unit(name) == "bit/s" { 8.0 } else { 1.0 };
            let rose = value - before.named(name).unwrap_or(0);
            (name.to_owned(), rose as f64 * each / self.seconds)
        };
        Some(now.iter().map(rate).collect())
    }

    /// A line of JSON: counters and rates by section and name. A counter of bytes, `rx_bytes`, has a rate in bits, `rx_bits`.
    pub fn to_json(&self) -> Value {
        let named = |(name, rate): (String, f64)| match name.strip_suffix(BYTES) {
            Some(name) => (format!("{name}_bits"), rate),
            None => (name, rate),
        };
        let rates = |section| self.rates(section).map(|rates| rates.into_iter().map(named).collect::<Value>());
        json!({
            "seconds": self.seconds,
            "counters": self.tree(|section| section.of(self.now).as_ref().map(counters)),
            "rates": self.tree(rates),
        })
    }

    /// An object with the values of all sections.
    fn tree(&self, value: impl Fn(Section) -> Option<Value>) -> Value {
        let Stats { threads, contexts, .. } = self.now;
        let ids = contexts.iter().map(|context| context.context);
        json!({
            "engine": value(Section::Engine),
            "nic_counters": value(Section::Nic),
            "threads": (0..threads.len()).map(|index| value(Section::Thread(index))).collect::<Vec<_>>(),
            "contexts": ids.map(|id| (id.to_string(), json!(value(Section::Context(id))))).collect::<Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Interval, Section};
    use libspin::{ContextInfo, Counters, Stats};
    use serde_json::json;

    fn context(id: u32, counters: &[(&'static str, u64)]) -> ContextInfo {
        ContextInfo { context: id, counters: counters.iter().copied().collect(), ..ContextInfo::default() }
    }

    fn stats(rx: u64, contexts: Vec<ContextInfo>) -> Stats {
        let engine = Counters::from_iter([("rx_packets", rx), ("rx_bytes", 100 * rx), ("faults", 0)]);
        Stats { engine, contexts, ..Stats::default() }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = stats(10, vec![context(1, &[("payload_runs", 4)])]);
        let now = stats(15, vec![context(1, &[("payload_runs", 6), ("tx_bytes", 3)])]);
        let line = Interval { before: &before, now: &now, seconds: 2.0 }.to_json();
        for (path, expected) in [
            ("/seconds", json!(2.0)),
            ("/counters/engine/rx_bytes", json!(1500)),
            ("/rates/engine/rx_packets", json!(2.5)),
            ("/rates/engine/rx_bits", json!(2000.0)),
            ("/rates/engine/faults", json!(0.0)),
            ("/counters/contexts/1/payload_runs", json!(6)),
            ("/rates/contexts/1/payload_runs", json!(1.0)),
            ("/rates/contexts/1/tx_bits", json!(12.0)),
            ("/rates/contexts/1/faults", json!(0.0)),
        ] {
            assert_eq!(line.pointer(path), Some(&expected), "{path} of {line}");
        }
        assert_eq!(line.pointer("/rates/engine/rx_bytes"), None, "a rate in bits is not named as bytes");
    }

    #[test]
    fn counters_that_began_again_have_no_rates() {
        let before = stats(10, vec![context(1, &[("payload_runs", 9), ("faults", 3)])]);
        // More runs than before, but fewer faults: other runs than those counted before.
        let now = stats(4, vec![context(1, &[("payload_runs", 12)]), context(2, &[("payload_runs", 7)])]);
        let interval = Interval { before: &before, now: &now, seconds: 1.0 };
        assert!(interval.rates(Section::Engine).is_none() && interval.rates(Section::Context(1)).is_none());
        assert!(interval.rates(Section::Context(2)).is_none(), "it is new");
        let line = interval.to_json();
        assert_eq!(line["rates"]["contexts"], json!({"1": null, "2": null}));
        assert_eq!((&line["rates"]["engine"], &line["counters"]["engine"]["rx_packets"]), (&json!(null), &json!(4)));
    }
}
