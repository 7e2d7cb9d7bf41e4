//! Published figures beside those of the run.

use super::engine::{VARIANT, cores_at_interval, latency_row};
use super::handlers::{DEFAULT, row_of, sizes};
use super::html::{Origin, Table, heading, paragraph};
use super::published::{ALL, Comparable, LATENCY};
use super::source::{Inputs, MeasuredRow, find, number};
use crate::peers::measure::Measure;
use crate::peers::peer::Peer;

/// Least frame size of the paper's stated throughputs of handlers.
const LEAST_SIZE: usize = 512;

/// Formats the section.
#[must_use]
pub fn section(inputs: &Inputs) -> String {
    let mut html = heading("Published figures");
    html.push_str(&paragraph(
        "Published figures come from other hardware: PsPIN is a simulated chip at 1 GHz, FPsPIN an FPGA. A cell “measured here” is empty \
         where this run has no comparable figure.",
    ));
    let columns =
        [("source", None), ("what", None), ("value", Some(Origin::Published)), ("measured here", Some(Origin::Ours))];
    let mut table = Table::new("Stated in papers and their data files", &columns);
    for figure in ALL {
        let here = figure.comparable.and_then(|comparable| measured(inputs, comparable)).unwrap_or_default();
        table.row(vec![figure.source.to_owned(), figure.what.to_owned(), figure.value.to_owned(), here]);
    }
    html.push_str(&table.html());
    html
}

/// The figure of the run that may be compared.
fn measured(inputs: &Inputs, comparable: Comparable) -> Option<String> {
    match comparable {
        Comparable::RoundTrip => round_trips(inputs),
        Comparable::FastHandlers => throughput(inputs.handlers.get()?, &["filtering", "kvstore", "strided_ddt"]),
        Comparable::SlowHandlers => throughput(inputs.handlers.get()?, &["aggregate", "reduce", "histogram"]),
        Comparable::Latency => latencies(inputs.engine.get()?),
        Comparable::CoresNeeded => {
            let row = find(inputs.engine.get()?, "empty/64", VARIANT, Some(1))?;
            Some(format!("{:.0} cores, computed from the time of one thread", cores_at_interval(row)))
        }
        Comparable::EmptyInterval => {
            let rows = inputs.engine.get()?;
            join([1, 2].map(|threads| {
                let row = find(rows, "empty/64", VARIANT, Some(threads))?;
                Some(format!("one per {} ns ({threads} thread{})", number(row.median), plural(threads)))
            }))
        }
        Comparable::Outbound => {
            let rows = inputs.engine.get()?;
            join([1, 2].map(|threads| {
                let row = find(rows, "pingpong/64", VARIANT, Some(threads))?;
                Some(format!("{} Gbit/s ({threads} thread{})", number(row.gbits(64)), plural(threads)))
            }))
        }
    }
}

const fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Joins the parts that exist.
fn join(parts: impl IntoIterator<Item = Option<String>>) -> Option<String> {
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn latencies(rows: &[MeasuredRow]) -> Option<String> {
    join(LATENCY.map(|(size, _)| Some(format!("{} ns ({size} B)", number(latency_row(rows, size)?.median)))))
}

/// Gbit/s of one core at the least measured size for which the paper states a throughput.
fn throughput(rows: &[MeasuredRow], handlers: &[&str]) -> Option<String> {
    let size = sizes(rows).into_iter().find(|size| *size >= LEAST_SIZE)?;
    let gbits = |handler: &&str| {
        let row = row_of(rows, handler, size, DEFAULT)?;
        Some(format!("{handler} {}", number(row.gbits(size))))
    };
    Some(format!("Gbit/s of one core, handler alone, {size} B: {}", join(handlers.iter().map(gbits))?))
}

/// Round trips through spind, which polls. The published sizes are not among those of the run.
fn round_trips(inputs: &Inputs) -> Option<String> {
    let results = inputs.wire.get()?;
    let text = |size: u16| {
        let series = results.find(&Peer::Spind("spin").name(), &Measure::BackToBack(size).name())?;
        Some(format!("frames of {size} B: {} µs", number(series.median())))
    };
    Some(format!("{}, idle spin, veth", join([64, 1500].map(text))?))
}

#[cfg(test)]
mod tests {
    use super::section;
    use crate::page::html::escape;
    use crate::page::published::ALL;
    use crate::page::source::Inputs;
    use crate::page::source::tests::{nothing, row};
    use crate::page::wire::tests::{results, series};

    #[test]
    fn every_published_value_stands_in_the_table() {
        let html = section(&nothing());
        for figure in ALL {
            let row = format!("<td>{}</td><td>{}</td><td></td>", escape(figure.what), escape(figure.value));
            assert!(html.contains(&row), "{row}");
        }
        assert_eq!(html.matches("<td></td></tr>").count(), ALL.len());
    }

    #[test]
    fn figures_of_the_run_stand_beside() {
        let mut inputs: Inputs = nothing();
        inputs.wire.content = Ok(results(vec![series("spind, idle spin", "round trip, 64 B", &[5.0, 6.0, 7.0])]));
        inputs.engine.content = Ok(vec![
            row("empty/64", "run-to-completion", Some(1), [25.0; 3]),
            row("pingpong/64", "run-to-completion", Some(2), [51.2; 3]),
            row("datagrams/1024", "latency-median", Some(1), [150.0; 3]),
        ]);
        inputs.handlers.content = Ok(vec![row("reduce/1024", "jit-page", None, [81.92; 3])]);
        let html = section(&inputs);
        for text in [
            "frames of 64 B: 6.00 µs, idle spin, veth",
            "one per 25.0 ns (1 thread)<",
            "20 cores, computed",
            ">10.0 Gbit/s (2 threads)<",
            ">150 ns (1024 B)<",
            "1024 B: reduce 100<",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert_eq!(html.matches("<td></td></tr>").count(), ALL.len() - 6);
    }
}
