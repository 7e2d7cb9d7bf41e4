//! Ratios of two programs, by round.

use crate::peers::results::{Results, median};

use super::program::Program;

/// Ratios of one program's figures to another's in the same round.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio(Vec<f64>);

impl Ratio {
    /// Ratios in a measurement. `None` if one of the programs was not measured.
    #[must_use]
    pub fn new(results: &Results, [one, other]: [Program; 2], measure: &str) -> Option<Self> {
        let [one, other] = [one, other].map(|program| results.find(&program.name(), measure));
        Some(Self(one?.rounds.iter().zip(&other?.rounds).map(|(one, other)| one / other).collect()))
    }

    /// Geometric means of several measurements, by round.
    #[must_use]
    pub fn geometric_mean(all: &[Self]) -> Self {
        let rounds = all.iter().map(|ratio| ratio.0.len()).min().unwrap_or_default();
        let mean = |round: usize| (all.iter().map(|ratio| ratio.0[round].ln()).sum::<f64>() / all.len() as f64).exp();
        Self((0..rounds).map(mean).collect())
    }

    /// Median of the rounds.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(&self.0)
    }

    /// Lowest and highest round.
    #[must_use]
    pub fn spread(&self) -> [f64; 2] {
        [f64::min, f64::max].map(|take| self.0.iter().copied().reduce(take).unwrap_or(f64::NAN))
    }
}

#[cfg(test)]
mod tests {
    use super::Ratio;

    #[test]
    fn means_are_of_the_same_round() {
        let mean = Ratio::geometric_mean(&[Ratio(vec![1.0, 2.0, 3.0]), Ratio(vec![4.0, 8.0])]);
        assert!((mean.0[0] - 2.0).abs() < 1e-9 && (mean.0[1] - 4.0).abs() < 1e-9 && mean.0.len() == 2);
        assert!((mean.median() - 3.0).abs() < 1e-9);
        assert!(Ratio(vec![]).spread()[0].is_nan() && Ratio(vec![]).median().is_nan());
    }
}
