//! Tables as text, and rows for JSON.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

/// Variant with which the others are compared.
pub const BASELINE: &str = "native-scalar";

/// Figures of the rounds of one variant of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the case, `NAME/SIZE`.
    pub case: String,
    /// Name of the variant.
    pub variant: &'static str,
    /// Unit of the figures.
    pub unit: &'static str,
    /// Median of the rounds.
    pub median: f64,
    /// The fastest round.
    pub min: f64,
    /// The slowest round.
    pub max: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Row {
    /// Summarises rounds measured in nanoseconds.
    ///
    /// # Panics
    /// There were no rounds.
    #[must_use]
    pub fn new(case: impl Display, variant: &'static str, times: Vec<f64>) -> Self {
        Self::of(case, variant, "ns/packet", times)
    }

    /// Summarises rounds measured in `unit`.
    ///
    /// # Panics
    /// There were no rounds.
    #[must_use]
    pub fn of(case: impl Display, variant: &'static str, unit: &'static str, mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let (rounds, median) = (figures.len(), figures[figures.len() / 2]);
        Self { case: case.to_string(), variant, unit, median, min: figures[0], max: figures[rounds - 1], rounds }
    }
}

/// Writes rows as a JSON array; a missing folder is created.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, rows: &[impl Serialize]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, serde_json::to_vec_pretty(rows)?)
}

/// Formats the head of a table with a line per `what`, and a description of its figures.
#[must_use]
pub fn head(what: &str, variants: &[&str], figures: &str) -> String {
    let columns: String = variants.iter().map(|name| format!("{name:>18}")).collect();
    format!("{what:<18}{columns}\n{:<18}{figures:>18}", "")
}

/// Formats the rows of one case as a line: nanoseconds, and their ratio to the [`BASELINE`].
#[must_use]
pub fn line(rows: &[Row]) -> String {
    let baseline = rows.iter().find(|row| row.variant == BASELINE).map(|row| row.median);
    let case = rows.first().map_or("", |row| &row.case);
    let columns: String = rows.iter().map(|row| column(row, baseline)).collect();
    format!("{case:<18}{columns}")
}

fn column(row: &Row, baseline: Option<f64>) -> String {
    match baseline {
        Some(baseline) if row.variant != BASELINE => format!("{:>10.1} ({:>5.2})", row.median, row.median / baseline),
        _ => format!("{:>18.1}", row.median),
    }
}
