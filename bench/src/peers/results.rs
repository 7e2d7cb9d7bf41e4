//! The figures of all rounds.

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::measure::Figures;

/// Figures of one program in one measurement, a number for each round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// The program.
    pub program: String,
    /// Whether it is of this project.
    pub ours: bool,
    /// The measurement.
    pub measure: String,
    /// Its unit.
    pub unit: String,
    /// Figures in this unit. Those of round trips are medians.
    pub rounds: Vec<f64>,
    /// 99th percentiles of the round trip in µs.
    pub p99: Vec<f64>,
    /// 99.9th percentiles of the round trip in µs.
    pub p999: Vec<f64>,
    /// Number of rounds that something else disturbed.
    pub disturbed: usize,
}

/// Everything a run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The command that measured.
    pub command: String,
    /// What figures depend on.
    pub machine: Machine,
    /// All series.
    pub series: Vec<Series>,
    /// Programs that were not measured, with the reason.
    pub missing: Vec<(String, String)>,
}

/// Median of figures. NaN if there are none.
#[must_use]
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
        len => sorted[len / 2],
    }
}

impl Series {
    /// Median of the rounds.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }

    /// Lowest and highest round.
    #[must_use]
    pub fn spread(&self) -> [f64; 2] {
        let fold = |start: f64, take: fn(f64, f64) -> f64| self.rounds.iter().copied().fold(start, take);
        [fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max)]
    }

    /// Geometric mean over the rounds of this series' figure divided by the other's.
    #[must_use]
    pub fn ratio_to(&self, other: &Self) -> f64 {
        let logs: Vec<f64> = self.rounds.iter().zip(&other.rounds).map(|(one, other)| (one / other).ln()).collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    }
}

/// What a series is about.
#[derive(Clone, Debug)]
pub struct About {
    /// The program.
    pub program: String,
    /// Whether it is of this project.
    pub ours: bool,
    /// The measurement.
    pub measure: String,
    /// Its unit.
    pub unit: &'static str,
}

impl Results {
    /// Results of this program and machine, as yet none.
    #[must_use]
    pub fn here() -> Self {
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        Self { command, machine: Machine::here(), series: Vec::new(), missing: Vec::new() }
    }

    /// Adds the figures of a round to the series of a program in a measurement.
    pub fn add(&mut self, about: About, figures: Figures, disturbed: bool) {
        let About { program, ours, measure, unit } = about;
        let same = |series: &Series| series.program == program && series.measure == measure;
        let index = self.series.iter().position(same).unwrap_or_else(|| {
            let (rounds, p99, p999) = (Vec::new(), Vec::new(), Vec::new());
            let unit = unit.to_owned();
            self.series.push(Series { program, ours, measure, unit, rounds, p99, p999, disturbed: 0 });
            self.series.len() - 1
        });
        let series = &mut self.series[index];
        series.rounds.push(figures.main);
        if let Some([p99, p999]) = figures.tail {
            series.p99.push(p99);
            series.p999.push(p999);
        }
        series.disturbed += usize::from(disturbed);
    }

    /// The series of a program in a measurement.
    #[must_use]
    pub fn find(&self, program: &str, measure: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.program == program && series.measure == measure)
    }
}

#[cfg(test)]
mod tests {
    use super::{Series, median};

    fn series(rounds: &[f64]) -> Series {
        Series {
            program: String::new(),
            ours: true,
            measure: String::new(),
            unit: String::new(),
            rounds: rounds.to_vec(),
            p99: vec![],
            p999: vec![],
            disturbed: 0,
        }
    }

    #[test]
    fn medians_spreads_and_ratios() {
        assert_eq!([median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])], [2.0, 2.5]);
        assert!(median(&[]).is_nan());
        assert_eq!(series(&[3.0, 1.0, 2.0]).spread(), [1.0, 3.0]);
        let ratio = series(&[2.0, 8.0]).ratio_to(&series(&[1.0, 1.0]));
        assert!((ratio - 4.0).abs() < 1e-9, "{ratio}");
    }
}
