//! Reading the results files of a run.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::peers::results::Results;

/// A row as [`crate::report::write`] writes it.
#[derive(Clone, Debug, Deserialize)]
pub struct MeasuredRow {
    /// Name of the case, `NAME/SIZE`.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// Unit of the figures.
    pub unit: String,
    /// Median of the rounds.
    pub median: f64,
    /// The lowest round.
    pub min: f64,
    /// The highest round.
    pub max: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Number of clusters, in rows of the engine.
    pub clusters: Option<u32>,
}

impl MeasuredRow {
    /// Name and frame size of the case. `None` if it names no size.
    #[must_use]
    pub fn name_and_size(&self) -> Option<(&str, usize)> {
        let (name, size) = self.case.rsplit_once('/')?;
        Some((name, size.parse().ok()?))
    }

    /// Gbit/s of frames of `size` bytes, if the row has a time per packet. Counts the bytes of the frame only, as the PsPIN paper does.
    #[must_use]
    pub fn gbits(&self, size: usize) -> f64 {
        (size * 8) as f64 / self.median
    }

    /// Mpps, if the row has a time per packet: median, lowest and highest round.
    #[must_use]
    pub fn mpps(&self) -> [f64; 3] {
        [self.median, self.max, self.min].map(|time| 1e3 / time)
    }
}

/// The row of a case and a variant. `clusters` limits it to rows of that number of clusters.
#[must_use]
pub fn find<'a>(rows: &'a [MeasuredRow], case: &str, variant: &str, clusters: Option<u32>) -> Option<&'a MeasuredRow> {
    let fits = |row: &&MeasuredRow| clusters.is_none() || row.clusters == clusters;
    rows.iter().filter(fits).find(|row| row.case == case && row.variant == variant)
}

/// A results file: its content, or the reason why there is none.
#[derive(Clone, Debug)]
pub struct Source<T> {
    /// Path of the file.
    pub path: String,
    /// What it contains, or why it cannot be used.
    pub content: Result<T, String>,
}

impl<T: DeserializeOwned> Source<T> {
    /// Reads a file.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).map_err(|error| error.to_string());
        let content = text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        Self { path: path.display().to_string(), content }
    }
}

impl<T> Source<T> {
    /// The content, if the file could be read.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.content.as_ref().ok()
    }

    /// States that a file cannot be used. `None` if it can.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let reason = self.content.as_ref().err()?;
        Some(format!("{}: {reason}: the section is left out", self.path))
    }
}

/// The results files of a run.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// Results of `spin-bench-wire`.
    pub wire: Source<Results>,
    /// Rows of `spin-bench-engine`.
    pub engine: Source<Vec<MeasuredRow>>,
    /// Rows of `spin-bench-handlers`.
    pub handlers: Source<Vec<MeasuredRow>>,
}

impl Inputs {
    /// Reads the three files.
    #[must_use]
    pub fn read(wire: &Path, engine: &Path, handlers: &Path) -> Self {
        Self { wire: Source::read(wire), engine: Source::read(engine), handlers: Source::read(handlers) }
    }

    /// States which files cannot be used.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        [self.wire.missing(), self.engine.missing(), self.handlers.missing()].into_iter().flatten().collect()
    }
}

/// Formats a figure with about three digits.
#[must_use]
pub fn number(figure: f64) -> String {
    match figure.abs() {
        _ if !figure.is_finite() => "not measured".to_owned(),
        size if size >= 99.95 => format!("{figure:.0}"),
        size if size >= 9.995 => format!("{figure:.1}"),
        size if size >= 0.9995 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::{Inputs, MeasuredRow, Source, find, number};
    use crate::report::{Row, write};

    /// A made-up row.
    pub(crate) fn row(case: &str, variant: &str, clusters: Option<u32>, figures: [f64; 3]) -> MeasuredRow {
        let [median, min, max] = figures;
        let (case, variant, unit) = (case.to_owned(), variant.to_owned(), "ns/packet".to_owned());
        MeasuredRow { case, variant, unit, median, min, max, rounds: 3, clusters }
    }

    /// Inputs with all files missing.
    pub(crate) fn nothing() -> Inputs {
        Inputs::read(Path::new("/absent/wire"), Path::new("/absent/engine"), Path::new("/absent/handlers"))
    }

    #[test]
    fn reads_what_the_benches_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.json");
        write(&path, &[Row::new("empty/64", "jit-page", vec![3.0, 2.0, 9.0])]).expect("written");
        let rows = Source::<Vec<MeasuredRow>>::read(&path).content.expect("rows");
        assert_eq!((rows[0].median, rows[0].min, rows[0].max, rows[0].rounds), (3.0, 2.0, 9.0, 3));
        assert_eq!(rows[0].name_and_size(), Some(("empty", 64)));
    }

    #[test]
    fn states_missing_and_invalid_files() {
        let missing = nothing().missing();
        assert_eq!(missing.len(), 3);
        assert!(missing[1].starts_with("/absent/engine: No such file"), "{}", missing[1]);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.json");
        std::fs::write(&path, "{}").expect("written");
        assert!(Source::<Vec<MeasuredRow>>::read(&path).missing().is_some());
    }

    #[test]
    fn finds_rows_and_computes_rates() {
        let rows = [
            row("a/64", "v", Some(1), [4.0, 2.0, 8.0]),
            row("a/64", "v", Some(2), [2.0, 1.0, 4.0]),
            row("b", "v", None, [1.0; 3]),
        ];
        let two = find(&rows, "a/64", "v", Some(2)).expect("a row");
        assert_eq!((two.gbits(64), two.mpps()), (256.0, [500.0, 250.0, 1000.0]));
        assert_eq!(find(&rows, "a/64", "v", None).expect("a row").median, 4.0);
        assert!(find(&rows, "a/64", "w", None).is_none() && rows[2].name_and_size().is_none());
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [1234.5, 99.96, 12.34, 9.996, 1.0, 0.1234, -5.678].map(number);
        assert_eq!(texts, ["1234", "100", "12.3", "10.0", "1.00", "0.123", "-5.68"]);
        assert_eq!(number(f64::NAN), "not measured");
    }
}
