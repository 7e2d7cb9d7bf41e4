//! The engine on packets in memory.

use super::html::{Origin, Table, heading, paragraph, subheading};
use super::published::{FIGURE_9, HPUS_NEEDED, INTERVAL, LATENCY, NOT_STATED};
use super::source::{MeasuredRow, find, number};
use super::svg::{Bar, Chart, Group, VARIANTS};

/// The variant with a thread for each cluster.
pub const VARIANT: &str = "run-to-completion";
/// Numbers of threads.
const THREADS: [u32; 2] = [1, 2];
/// Cases like those of the PsPIN paper's figure 8: handlers that do nothing.
const EMPTY: [&str; 6] = ["empty", "message", "one-live", "10000-live", "packet-mode", "datagrams"];
/// Cases like those of its figure 9: packets that are sent, or copied to the host.
const OUTBOUND: [&str; 4] = ["pingpong", "pingpong-user", "to-host", "headers"];

/// Formats the section.
#[must_use]
pub fn section(rows: &[MeasuredRow]) -> String {
    let mut html = heading("Engine: packets in memory");
    html.push_str(&paragraph(
        "No NIC takes part: a thread receives packets from memory, matches, orders and runs them, and frees them. Each thread serves one \
         cluster. Gbit/s counts the bytes of the frame only, as the PsPIN paper does.",
    ));
    let groups = [
        ("Outbound (as figure 9 of the PsPIN paper)", cases(rows, |name| OUTBOUND.contains(&name))),
        ("Empty handlers (as figure 8 of the PsPIN paper)", cases(rows, |name| EMPTY.contains(&name))),
        ("Other cases", cases(rows, |name| !OUTBOUND.contains(&name) && !EMPTY.contains(&name))),
    ];
    for (title, cases) in groups.into_iter().filter(|(_, cases)| !cases.is_empty()) {
        let chart = chart(rows, title, &cases);
        html.push_str(&subheading(&chart.title));
        html.push_str(&chart.svg());
        html.push_str(&table(rows, &cases).html());
    }
    html.push_str(&subheading("HPUs needed at 64 B (as figure 8)"));
    html.push_str(&cores_needed(rows).html());
    html.push_str(&subheading("Latency of a lone packet"));
    html.push_str(&latency(rows).html());
    html
}

/// The cases that were measured, in the order of the file.
fn cases(rows: &[MeasuredRow], is_wanted: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut cases: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.variant == VARIANT) {
        let wanted = row.name_and_size().is_some_and(|(name, _)| is_wanted(name));
        if wanted && !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    cases
}

fn chart(rows: &[MeasuredRow], title: &str, cases: &[&str]) -> Chart {
    let bar = |case: &str, threads: u32, colour| {
        let row = find(rows, case, VARIANT, Some(threads))?;
        let [value, low, high] = row.mpps();
        let (_, size) = row.name_and_size()?;
        let text = format!("{} ({} Gbit/s)", number(value), number(row.gbits(size)));
        let label = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
        Some(Bar { label, value, spread: Some([low, high]), colour, text })
    };
    let group = |case: &&str| {
        let bars = THREADS.into_iter().zip(VARIANTS).filter_map(|(threads, colour)| bar(case, threads, colour));
        Group { name: (*case).to_owned(), bars: bars.collect() }
    };
    Chart {
        title: format!("{title}: throughput (ours, this run)"),
        axis: "Mpps, higher is better".to_owned(),
        legend: vec![(VARIANTS[0], "1 thread"), (VARIANTS[1], "2 threads")],
        reference: None,
        groups: cases.iter().map(group).collect(),
    }
}

fn table(rows: &[MeasuredRow], cases: &[&str]) -> Table {
    let (ours, published) = (Some(Origin::Ours), Some(Origin::Published));
    let columns = [
        ("case (handler/bytes)", None),
        ("threads", None),
        ("ns per packet", ours),
        ("lowest to highest", ours),
        ("Mpps", ours),
        ("Gbit/s", ours),
        ("PsPIN", published),
    ];
    let mut table = Table::new(&format!("{VARIANT}, medians of rounds"), &columns);
    for case in cases {
        for row in THREADS.into_iter().filter_map(|threads| find(rows, case, VARIANT, Some(threads))) {
            let Some((name, size)) = row.name_and_size() else { continue };
            let range = format!("{} to {}", number(row.min), number(row.max));
            let mut cells = vec![row.case.clone(), row.clusters.unwrap_or(1).to_string(), number(row.median), range];
            cells.extend([row.mpps()[0], row.gbits(size)].map(number));
            cells.push(outbound(name, size).to_owned());
            table.row(cells);
        }
    }
    table
}

/// The published outbound throughput of packets of a size. The paper's figure 8 has no stated throughput.
fn outbound(name: &str, size: usize) -> &'static str {
    let of_size = FIGURE_9.iter().rev().find(|(from, _)| size >= *from && (*from > 64 || size == 64));
    of_size.filter(|_| ["pingpong", "to-host"].contains(&name)).map_or(NOT_STATED, |(_, text)| text)
}

/// Cores that a case needs for packets at the published interval.
#[must_use]
pub fn cores_at_interval(row: &MeasuredRow) -> f64 {
    (row.median / INTERVAL).ceil()
}

fn cores_needed(rows: &[MeasuredRow]) -> Table {
    let columns = [
        ("case (handler/bytes)", None),
        ("ns per packet, 1 thread", Some(Origin::Ours)),
        ("cores needed", Some(Origin::Ours)),
        ("HPUs needed", Some(Origin::Published)),
    ];
    let caption =
        format!("Cores for one packet per {INTERVAL} ns (400 Gbit/s of 64 B): time of one thread / {INTERVAL} ns");
    let mut table = Table::new(&caption, &columns);
    for case in cases(rows, |name| EMPTY.contains(&name)) {
        let Some(row) = find(rows, case, VARIANT, Some(1)) else { continue };
        let published = if case == "empty/64" { HPUS_NEEDED.to_string() } else { NOT_STATED.to_owned() };
        table.row(vec![case.to_owned(), number(row.median), format!("{:.0}", cores_at_interval(row)), published]);
    }
    table
}

/// Latency of a lone packet of a size: the row of its median.
#[must_use]
pub fn latency_row(rows: &[MeasuredRow], size: usize) -> Option<&MeasuredRow> {
    find(rows, &format!("datagrams/{size}"), "latency-median", None)
}

fn latency(rows: &[MeasuredRow]) -> Table {
    let columns = [
        ("size", None),
        ("median", Some(Origin::Ours)),
        ("lowest to highest", Some(Origin::Ours)),
        ("p99", Some(Origin::Ours)),
        ("PsPIN, HER to completion", Some(Origin::Published)),
    ];
    let mut table = Table::new("ns from receive to release, an empty handler, one packet at a time", &columns);
    let absent = || number(f64::NAN);
    for (size, published) in LATENCY {
        let row = latency_row(rows, size);
        let p99 = find(rows, &format!("datagrams/{size}"), "latency-p99", None);
        let range = row.map_or_else(absent, |row| format!("{} to {}", number(row.min), number(row.max)));
        let median = |row: Option<&MeasuredRow>| row.map_or_else(absent, |row| number(row.median));
        table.row(vec![format!("{size} B"), median(row), range, median(p99), published.to_string()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{cases, cores_at_interval, outbound, section};
    use crate::page::published::NOT_STATED;
    use crate::page::source::tests::row;

    #[test]
    fn a_section_has_rates_cores_and_latencies() {
        let rows = [
            row("empty/64", "run-to-completion", Some(1), [25.6, 25.0, 32.0]),
            row("empty/64", "run-to-completion", Some(2), [12.8, 12.0, 16.0]),
            row("empty/64", "pipeline", Some(2), [77.7, 70.0, 80.0]),
            row("pingpong/1514", "run-to-completion", Some(1), [100.0, 90.0, 110.0]),
            row("datagrams/64", "latency-median", Some(1), [123.0, 120.0, 130.0]),
        ];
        let html = section(&rows);
        // 64 × 8 bits in 12.8 ns are 40 Gbit/s.
        assert!(html.contains("78.1 (40.0 Gbit/s)") && html.contains("39.1 (20.0 Gbit/s)"), "{html}");
        assert!(html.contains("<td class=\"n\">20</td><td class=\"n\">19</td>"), "{html}");
        assert!(
            html.contains("<td class=\"n\">123</td><td>120 to 130</td><td>not measured</td><td class=\"n\">26</td>"),
            "{html}"
        );
        assert!(!html.contains("77.7") && html.contains("<td>full rate</td>"), "{html}");
        assert_eq!(cases(&rows, |_| true), ["empty/64", "pingpong/1514"]);
        assert_eq!(cores_at_interval(&rows[0]), 20.0);
    }

    #[test]
    fn only_stated_throughput_is_published() {
        assert!(outbound("pingpong", 64).starts_with("from L1"));
        assert_eq!(
            [outbound("to-host", 1514), outbound("to-host", 128), outbound("empty", 64)],
            ["full rate", NOT_STATED, NOT_STATED]
        );
    }
}
