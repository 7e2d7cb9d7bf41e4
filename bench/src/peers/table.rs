//! Tables of results.

use super::results::{Results, median};

/// Prints the medians of all series, by measurement.
pub fn print(results: &Results) {
    let mut names: Vec<&str> = results.series.iter().map(|series| series.measure.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        println!("\n{name}");
        for series in results.series.iter().filter(|series| series.measure == name) {
            let [low, high] = series.spread();
            print!(
                "  {:28} {:8.3} {}  ({low:.3} to {high:.3} in {} rounds",
                series.program,
                series.median(),
                series.unit,
                series.rounds.len()
            );
            if series.disturbed > 0 {
                print!(", {} disturbed", series.disturbed);
            }
            print!(")");
            if !series.p99.is_empty() {
                print!("  p99 {:.1}, p99.9 {:.1}", median(&series.p99), median(&series.p999));
            }
            println!();
        }
    }
    for (program, reason) in &results.missing {
        println!("  {program}: not measured: {reason}");
    }
}
