//! Cost of the XDP program's decision by the number of contexts, in test runs in the kernel.

use std::fmt::Write;

use spin_abi::rules::RuleSet;
use spin_matcher::{Table, TableEntry};
use spin_nic::{Filter, FlowSteering};

use super::lab::Failure;
use super::measured::{Measured, OfClusters, single};
use super::shares::frame;
use crate::report::Row;

/// Runs of the program per round.
const RUNS: u32 = 1_000_000;
/// Port of the first context; the others use the following ones.
const PORT: u16 = 10_000;
/// Port without a context.
const OTHER: u16 = 9;
/// Address of the frames.
const ADDRESS: &str = "10.0.0.2";

/// Contexts and their rules: how many, and the term that each has besides its port and address.
const CASES: [(&str, u16, &str); 4] = [
    ("no contexts", 0, ""),
    ("1 context", 1, ""),
    ("1000 contexts", 1000, ""),
    // As many tests as an ordinary user may take.
    ("16 contexts with payload[0:1] = 0", 16, " and payload[0:1] = 0"),
];

/// Nanoseconds per decision.
pub struct XdpRules {
    filter: Filter,
    cases: Vec<Case>,
}

struct Case {
    name: &'static str,
    rules: RuleSet,
    /// A frame that matches the last context, and one that matches none.
    frames: [Vec<u8>; 2],
    rounds: [Vec<f64>; 2],
}

impl XdpRules {
    /// Loads the program. Needs root.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn new() -> Result<Self, Failure> {
        let case = |(name, contexts, more): (&'static str, u16, &str)| {
            let rule = |port| format!("udp dport {port} and ip dst {ADDRESS}{more}");
            let entry = |port| Ok(TableEntry { rules: rule(port).parse()?, ..TableEntry::default() });
            let entries = (PORT..PORT + contexts).map(entry).collect::<Result<Vec<_>, Failure>>()?;
            let last = (PORT + contexts).saturating_sub(1);
            let frames = [last, OTHER].map(|port| frame(port, 0, 0));
            let rules = Table::new(&entries)?.rules().clone();
            Ok::<_, Failure>(Case { name, rules, frames, rounds: Default::default() })
        };
        Ok(Self { filter: Filter::load()?, cases: CASES.into_iter().map(case).collect::<Result<_, _>>()? })
    }
}

impl Measured for XdpRules {
    fn round(&mut self) -> Result<(), Failure> {
        for Case { rules, frames, rounds, .. } in &mut self.cases {
            self.filter.set_rules(rules)?;
            let is_any = *rules != RuleSet::default();
            for ((frame, rounds), matches) in frames.iter().zip(rounds).zip([is_any, false]) {
                if self.filter.test_run(frame)?.is_some() != matches {
                    return Err("the XDP program decides otherwise than the rules".into());
                }
                rounds.push(self.filter.test_time(frame, RUNS)?.as_nanos() as f64);
            }
        }
        Ok(())
    }

    fn sum_up(self: Box<Self>) -> (String, Vec<OfClusters>) {
        let mut table = format!("{:<36}{:>12}{:>12}  ns/decision of the XDP program\n", "rules", "matched", "passed");
        let mut rows = Vec::new();
        for Case { name, rounds: [matched, passed], .. } in self.cases {
            let row = |variant, rounds| Row::of(format!("xdp-rules, {name}"), variant, "ns/decision", rounds);
            let figures = [row("matched", matched), row("passed", passed)];
            let _ = writeln!(table, "{name:<36}{:>12.0}{:>12.0}", figures[0].median, figures[1].median);
            rows.extend(figures.map(single));
        }
        (table, rows)
    }
}
