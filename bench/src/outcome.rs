//! Result of a run of requests and replies.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

/// Histogram of round-trip times from 1 ns to 60 s, with three significant digits.
pub struct RoundTrips(Histogram<u64>);

impl Default for RoundTrips {
    fn default() -> Self {
        #[allow(clippy::expect_used, reason = "constant bounds that the histogram accepts")]
        Self(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds"))
    }
}

impl RoundTrips {
    /// Records a time; longer times count as the upper end of the range.
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns a quantile in microseconds; `None` without any times.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "three digits are kept, f64 holds fifteen")]
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share) as f64 / 1000.0)
    }
}

/// Counts of a run, and its round-trip times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name in the table: `ping`, `udp 256 B`.
    pub name: String,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered in time with the correct content.
    pub answered: u64,
    /// Requests not answered in time.
    pub lost: u64,
    /// Replies with wrong content, or without a request.
    pub wrong: u64,
    /// Correct replies to requests that were already answered.
    pub duplicate: u64,
    /// Correct replies that arrived after their request was counted as lost.
    pub late: u64,
    /// Median round trip.
    pub p50_us: Option<f64>,
    /// 99th percentile of the round trips.
    pub p99_us: Option<f64>,
}

impl Outcome {
    /// Sets median and 99th percentile from `times`.
    pub fn set_times(&mut self, times: &RoundTrips) {
        self.p50_us = times.quantile_us(0.5);
        self.p99_us = times.quantile_us(0.99);
    }

    /// Whether each request had exactly one reply and all replies were correct.
    #[must_use]
    pub fn all_answered(&self) -> bool {
        self.sent > 0 && self.answered == self.sent && self.lost + self.wrong + self.duplicate + self.late == 0
    }

    /// Whether no reply came back.
    #[must_use]
    pub fn none_answered(&self) -> bool {
        self.sent > 0 && self.lost == self.sent && self.answered + self.wrong + self.duplicate + self.late == 0
    }
}

fn time(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |us| format!("{us:.1}"))
}

/// Formats the outcomes as a table, next to the times of other programs where they have a row of the same name.
#[must_use]
pub fn table(spind: &[Outcome], others: &[(&str, Vec<Outcome>)]) -> String {
    let mut text = format!("{:<14} {:>7} {:>9} {:>6} {:>6}", "p50 / p99 µs", "sent", "answered", "lost", "wrong");
    for name in std::iter::once("spind").chain(others.iter().map(|(name, _)| *name)) {
        let _ = write!(text, "  {name:>22}");
    }
    text.push('\n');
    for row in spind {
        let wrong = row.wrong + row.duplicate + row.late;
        let _ = write!(text, "{:<14} {:>7} {:>9} {:>6} {wrong:>6}", row.name, row.sent, row.answered, row.lost);
        let same = others.iter().map(|(_, rows)| rows.iter().find(|other| other.name == row.name));
        for other in std::iter::once(Some(row)).chain(same) {
            let times = other.map_or_else(String::new, |o| format!("{} / {}", time(o.p50_us), time(o.p99_us)));
            let _ = write!(text, "  {times:>22}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Outcome, RoundTrips, table};
    use std::time::Duration;

    #[test]
    fn quantiles() {
        let mut times = RoundTrips::default();
        assert_eq!(times.quantile_us(0.5), None);
        (1..=100).for_each(|us| times.record(Duration::from_micros(us)));
        let close = |share, us: f64| (times.quantile_us(share).unwrap() - us).abs() < us / 500.0;
        assert!(close(0.5, 50.0) && close(0.99, 99.0));
        times.record(Duration::from_secs(1000));
    }

    #[test]
    fn verdicts() {
        let good = Outcome { sent: 3, answered: 3, ..Outcome::default() };
        assert!(good.all_answered() && !good.none_answered());
        for bad in [
            Outcome { answered: 2, lost: 1, ..good.clone() },
            Outcome { wrong: 1, ..good.clone() },
            Outcome { duplicate: 1, ..good.clone() },
            Outcome { sent: 0, answered: 0, ..good.clone() },
        ] {
            assert!(!bad.all_answered(), "{bad:?}");
        }
        let silent = Outcome { sent: 3, lost: 3, ..Outcome::default() };
        assert!(silent.none_answered() && !Outcome { late: 1, ..silent }.none_answered());
    }

    #[test]
    fn table_pairs_by_name() {
        let row = |name: &str, p50| Outcome { name: name.into(), sent: 5, p50_us: Some(p50), ..Outcome::default() };
        let others = [("bare", vec![row("udp 18 B", 3.0), row("other", 9.0)]), ("kernel", vec![row("ping", 4.0)])];
        let text = table(&[row("ping", 1.25), row("udp 18 B", 2.0)], &others);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let times = |line: &str| {
            line.split("  ").map(str::trim).filter(|cell| cell.contains('/')).collect::<Vec<_>>().join(" ")
        };
        assert!(lines[0].ends_with("kernel") && lines[0].contains("  spind  "), "{text}");
        assert_eq!((times(lines[1]), times(lines[2])), ("1.2 / - 4.0 / -".to_owned(), "2.0 / - 3.0 / -".to_owned()));
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "columns:\n{text}");
    }
}
