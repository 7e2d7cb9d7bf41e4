//! Compares the rows of two programs, measured in alternating rounds.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use crate::peers::results::median;

/// What is compared of a row. Other fields are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    case: String,
    variant: String,
    #[serde(default)]
    clusters: u32,
    median: f64,
}

/// Rounds by case, variant and number of clusters.
type Rounds = BTreeMap<(String, String, u32), Vec<f64>>;

fn gather(rounds: &[Vec<Row>]) -> Rounds {
    let mut all = Rounds::new();
    for row in rounds.iter().flatten() {
        all.entry((row.case.clone(), row.variant.clone(), row.clusters)).or_default().push(row.median);
    }
    all
}

/// A table of what both have: medians of the rounds, and median, least and greatest of the ratios new / base by round.
#[must_use]
pub fn table(base: &[Vec<Row>], new: &[Vec<Row>]) -> String {
    let (base, new) = (gather(base), gather(new));
    let mut text = format!("{:36} {:>10} {:>10}   {}\n", "case, variant, clusters", "base", "new", "new / base");
    for (name, rounds) in &base {
        let Some(others) = new.get(name) else { continue };
        let ratios: Vec<f64> = others.iter().zip(rounds).map(|(new, base)| new / base).collect();
        let fold = |start: f64, take: fn(f64, f64) -> f64| ratios.iter().copied().fold(start, take);
        let (case, variant, clusters) = name;
        let name = format!("{case} {variant} {clusters}");
        let (low, high) = (fold(f64::INFINITY, f64::min), fold(0.0, f64::max));
        let _ = writeln!(
            text,
            "{name:36} {:10.2} {:10.2}   {:.3} ({low:.3} to {high:.3})",
            median(rounds),
            median(others),
            median(&ratios)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Row, table};

    #[test]
    fn rounds_are_compared_one_by_one() {
        let rounds = |times: &[f64]| -> Vec<Vec<Row>> {
            let row = |&median: &f64| Row { case: "empty/64".into(), variant: "one".into(), clusters: 1, median };
            times.iter().map(|time| vec![row(time)]).collect()
        };
        // The machine was slow in the second round of both.
        let text = table(&rounds(&[10.0, 30.0, 12.0]), &rounds(&[11.0, 33.0, 12.0]));
        assert!(
            text.lines().nth(1).is_some_and(|line| line.ends_with("12.00      12.00   1.100 (1.000 to 1.100)")),
            "{text}"
        );
        let other = vec![vec![Row { case: "other".into(), ..rounds(&[1.0])[0][0].clone() }]];
        assert_eq!(table(&rounds(&[1.0]), &other).lines().count(), 1, "nothing in common");
    }
}
