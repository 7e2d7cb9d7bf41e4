//! The paper's handlers, and those that the translator is not tuned for, in every execution mode.

use super::html::{Origin, Table, heading, paragraph, subheading};
use super::published::{FIGURE_10, PER_CORE, of};
use super::source::{MeasuredRow, find, number};
use super::svg::{Bar, Chart, Group, VARIANTS};
use crate::handlers::case::Handler;
use crate::handlers::summary::Summary;
use crate::report::BASELINE;

/// The handlers of the paper's figures 10 to 12.
pub const HANDLERS: [&str; 6] = ["filtering", "kvstore", "strided_ddt", "aggregate", "reduce", "histogram"];
/// The variants, the one of comparison first.
const SHOWN: [&str; 6] = [BASELINE, "native-vector", "native-atomics", "jit-page", "jit-exact", "jit-vector"];
/// The variant that spind runs by default.
pub const DEFAULT: &str = "jit-page";

/// Formats the section.
#[must_use]
pub fn section(rows: &[MeasuredRow]) -> String {
    let mut html = heading("Handlers: time per packet on one core");
    html.push_str(&paragraph(
        "“native” is compiled for this processor and runs without a sandbox. “jit” is the RV32 image, translated at install: “page” and \
         “exact” are its memory checks, “vector” uses vector instructions. spind runs jit-page by default.",
    ));
    for size in sizes(rows) {
        html.push_str(&measured(rows, &HANDLERS, size, "ours, this run; as figures 10 to 12"));
        html.push_str(&published(rows, size).html());
    }
    html.push_str(&untuned(rows));
    html
}

/// Formats the handlers that the translator is not tuned for; nothing if none was measured.
fn untuned(rows: &[MeasuredRow]) -> String {
    let medians = rows.iter().map(|row| (row.case.as_str(), row.variant.as_str(), row.median));
    let Some(summary) = Summary::of(medians, DEFAULT) else { return String::new() };
    let names = Handler::UNTUNED.map(Handler::name);
    let mut html = heading("Handlers that the translator is not tuned for");
    html.push_str(&paragraph(&format!("{summary}.")));
    for size in sizes_of(rows, &names) {
        html.push_str(&measured(rows, &names, size, "ours, this run"));
    }
    html
}

/// Formats chart and table of some handlers on packets of one size.
fn measured(rows: &[MeasuredRow], names: &[&str], size: usize, origin: &str) -> String {
    let chart = chart(rows, names, size, origin);
    let mut html = subheading(&chart.title);
    html.push_str(&chart.svg());
    html.push_str(&paragraph(&format!(
        "A bar is a ratio of medians; the dashed line is {BASELINE}. The table has the lowest and highest rounds."
    )));
    html.push_str(&times(rows, names, size).html());
    html
}

/// The sizes with which the paper's handlers were measured, ascending.
#[must_use]
pub fn sizes(rows: &[MeasuredRow]) -> Vec<usize> {
    sizes_of(rows, &HANDLERS)
}

fn sizes_of(rows: &[MeasuredRow], names: &[&str]) -> Vec<usize> {
    let sizes = rows.iter().filter_map(|row| row.name_and_size());
    let mut sizes: Vec<_> = sizes.filter(|(name, _)| names.contains(name)).map(|(_, size)| size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The row of a handler.
#[must_use]
pub fn row_of<'a>(rows: &'a [MeasuredRow], handler: &str, size: usize, variant: &str) -> Option<&'a MeasuredRow> {
    find(rows, &format!("{handler}/{size}"), variant, None)
}

/// Time of a variant divided by that of the variant of comparison.
fn relative(rows: &[MeasuredRow], handler: &str, size: usize, variant: &str) -> Option<f64> {
    let [one, base] = [variant, BASELINE].map(|variant| row_of(rows, handler, size, variant));
    Some(one?.median / base?.median)
}

fn chart(rows: &[MeasuredRow], names: &[&str], size: usize, origin: &str) -> Chart {
    let colours = || SHOWN.into_iter().zip(VARIANTS).skip(1);
    let group = |handler: &str| {
        let bars = colours().filter_map(|(variant, colour)| {
            let value = relative(rows, handler, size, variant)?;
            Some(Bar { label: variant.to_owned(), value, spread: None, colour, text: number(value) })
        });
        Group { name: handler.to_owned(), bars: bars.collect() }
    };
    Chart {
        title: format!("Frames of {size} B: time relative to {BASELINE} ({origin})"),
        axis: format!("time / time of {BASELINE}, lower is better"),
        legend: colours().map(|(variant, colour)| (colour, variant)).collect(),
        reference: Some(1.0),
        groups: names.iter().map(|name| group(name)).filter(|group| !group.bars.is_empty()).collect(),
    }
}

fn times(rows: &[MeasuredRow], names: &[&str], size: usize) -> Table {
    let mut columns = vec![("handler", None)];
    columns.extend(SHOWN.map(|variant| (variant, Some(Origin::Ours))));
    let mut table = Table::new(&format!("ns per packet of {size} B: median (lowest to highest round)"), &columns);
    for &handler in names {
        let cell = |variant: &str| match row_of(rows, handler, size, variant) {
            Some(MeasuredRow { median, min, max, .. }) => {
                format!("{} ({} to {})", number(*median), number(*min), number(*max))
            }
            None => number(f64::NAN),
        };
        let mut cells = vec![handler.to_owned()];
        cells.extend(SHOWN.map(cell));
        table.row(cells);
    }
    table
}

fn published(rows: &[MeasuredRow], size: usize) -> Table {
    let columns = [
        ("handler", None),
        ("jit-page / native-scalar", Some(Origin::Ours)),
        ("jit-vector / native-vector", Some(Origin::Ours)),
        ("PsPIN, per core against the best of Xeon and ARM", Some(Origin::Published)),
        ("Gbit/s of one core, jit-page", Some(Origin::Ours)),
        ("PsPIN", Some(Origin::Published)),
    ];
    let mut table = Table::new(&format!("Beside figures 10 to 12 of the PsPIN paper, {size} B"), &columns);
    for handler in HANDLERS {
        let median = |variant| row_of(rows, handler, size, variant).map_or(f64::NAN, |row| row.median);
        let gbits = row_of(rows, handler, size, DEFAULT).map_or(f64::NAN, |row| row.gbits(size));
        table.row(vec![
            handler.to_owned(),
            number(median(DEFAULT) / median(BASELINE)),
            number(median("jit-vector") / median("native-vector")),
            of(&PER_CORE, handler).to_owned(),
            number(gbits),
            of(&FIGURE_10, handler).to_owned(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{HANDLERS, relative, section, sizes};
    use crate::page::published::{FIGURE_10, PER_CORE};
    use crate::page::source::tests::row;

    #[test]
    fn ratios_are_to_the_baseline() {
        let rows = [
            row("kvstore/512", "native-scalar", None, [20.0, 19.0, 30.0]),
            row("kvstore/512", "jit-page", None, [32.0, 31.0, 50.0]),
            row("empty/64", "jit-page", None, [1.0; 3]),
            row("kvstore", "translate-page", None, [5.0; 3]),
        ];
        assert_eq!((sizes(&rows), relative(&rows, "kvstore", 512, "jit-page")), (vec![512], Some(1.6)));
        assert_eq!(relative(&rows, "kvstore", 512, "jit-exact"), None);
        let html = section(&rows);
        assert!(html.contains("20.0 (19.0 to 30.0)") && html.contains("32.0 (31.0 to 50.0)"), "{html}");
        // 512 × 8 bits in 32 ns are 128 Gbit/s.
        assert!(
            html.contains(
                "<td class=\"n\">1.60</td><td>not measured</td><td>PsPIN 1.9× faster</td><td class=\"n\">128</td>"
            ),
            "{html}"
        );
    }

    #[test]
    fn untuned_handlers_have_a_table_without_published_figures() {
        let paper = row("kvstore/512", "native-scalar", None, [20.0, 19.0, 30.0]);
        assert!(!section(std::slice::from_ref(&paper)).contains("not tuned"));
        let rows = [
            paper,
            row("crc32/1024", "native-scalar", None, [100.0, 99.0, 101.0]),
            row("crc32/1024", "jit-page", None, [150.0, 149.0, 151.0]),
        ];
        assert_eq!(sizes(&rows), [512]);
        let html = section(&rows);
        let (_, untuned) = html.split_once("not tuned for").expect("a heading");
        assert!(
            untuned.contains("geometric mean 1.50 of 1 cases") && untuned.contains("150 (149 to 151)"),
            "{untuned}"
        );
        assert!(!untuned.contains("PsPIN") && !untuned.contains("kvstore"), "{untuned}");
    }

    #[test]
    fn every_handler_has_published_figures() {
        assert_eq!(PER_CORE.map(|(handler, _)| handler), HANDLERS);
        assert_eq!(FIGURE_10.map(|(handler, _)| handler), HANDLERS);
    }
}
