//! Translated code beside native code, over the handlers that the translator is not tuned for.

use super::case::Handler;
use crate::report::BASELINE;
use std::fmt;

/// Ratios of a variant's time to native code's.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    variant: String,
    ratios: Vec<(String, f64)>,
}

impl Summary {
    /// Summarises medians: case, variant, nanoseconds. `None` if no case of [`Handler::UNTUNED`] has both medians.
    pub fn of<'r>(rows: impl IntoIterator<Item = (&'r str, &'r str, f64)>, variant: &str) -> Option<Self> {
        let rows: Vec<_> = rows.into_iter().filter(|(case, ..)| is_untuned(case)).collect();
        let base = |of: &str| rows.iter().find(|(case, variant, _)| (*case, *variant) == (of, BASELINE));
        let measured = rows.iter().filter(|(_, measured, _)| *measured == variant);
        let ratios = measured.filter_map(|(case, _, time)| Some(((*case).to_owned(), time / base(case)?.2)));
        let ratios: Vec<_> = ratios.collect();
        (!ratios.is_empty()).then(|| Self { variant: variant.to_owned(), ratios })
    }

    /// Returns the geometric mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let logarithms: f64 = self.ratios.iter().map(|(_, ratio)| ratio.ln()).sum();
        (logarithms / self.ratios.len() as f64).exp()
    }

    /// Returns the case with the largest ratio, and this ratio.
    ///
    /// # Panics
    /// Never: a summary has a case.
    #[must_use]
    pub fn largest(&self) -> (&str, f64) {
        let largest = self.ratios.iter().max_by(|left, right| left.1.total_cmp(&right.1));
        largest.map(|(case, ratio)| (case.as_str(), *ratio)).expect("a summary has a case")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (case, largest) = self.largest();
        let (variant, count, mean) = (&self.variant, self.ratios.len(), self.mean());
        write!(
            f,
            "untuned handlers, {variant} / {BASELINE}: geometric mean {mean:.2} of {count} cases, largest {largest:.2} ({case})"
        )
    }
}

fn is_untuned(case: &str) -> bool {
    case.rsplit_once('/').is_some_and(|(name, _)| Handler::UNTUNED.iter().any(|handler| handler.name() == name))
}

#[cfg(test)]
mod tests {
    use super::Summary;

    const ROWS: [(&str, &str, f64); 8] = [
        ("crc32/512", "native-scalar", 100.0),
        ("crc32/512", "jit-page", 100.0),
        ("bloom/512", "native-scalar", 10.0),
        ("bloom/512", "jit-page", 40.0),
        ("bloom/512", "jit-exact", 90.0),
        // A handler of the paper, and one without a native time.
        ("reduce/512", "native-scalar", 1.0),
        ("reduce/512", "jit-page", 9.0),
        ("siphash/512", "jit-page", 9.0),
    ];

    #[test]
    fn the_mean_is_geometric_and_of_the_untuned_handlers() {
        let summary = Summary::of(ROWS, "jit-page").expect("two cases");
        assert_eq!((summary.mean(), summary.largest()), (2.0, ("bloom/512", 4.0)));
        assert_eq!(
            summary.to_string(),
            "untuned handlers, jit-page / native-scalar: geometric mean 2.00 of 2 cases, largest 4.00 (bloom/512)"
        );
        assert_eq!(Summary::of(ROWS, "jit-exact").expect("a case").largest(), ("bloom/512", 9.0));
    }

    #[test]
    fn without_cases_there_is_no_summary() {
        assert_eq!(Summary::of(ROWS, "interp"), None);
        assert_eq!(Summary::of(ROWS.into_iter().skip(5), "jit-page"), None);
    }
}
