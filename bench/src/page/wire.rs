//! spind and other programs on one wire.

use super::html::{Origin, Table, heading, list, paragraph, subheading};
use super::source::number;
use super::svg::{Bar, Chart, Group, OURS, PEER};
use crate::peers::measure::Measure;
use crate::peers::peer::Peer;
use crate::peers::results::{Results, Series, median};

/// Formats the section.
#[must_use]
pub fn section(results: &Results) -> String {
    let mut html = heading("Wire: spind and other UDP echoes on one veth");
    html.push_str(&paragraph(
        "Each program echoes UDP datagrams on one core; the load runs on another. Sizes are those of frames without check sequence.",
    ));
    html.push_str(&list(&ratios(results)));
    let missing: Vec<String> =
        results.missing.iter().map(|(program, reason)| format!("{program}: not measured: {reason}")).collect();
    if !missing.is_empty() {
        html.push_str(&list(&missing));
    }
    for measure in measures(results) {
        let series = sorted(results, measure);
        let chart = chart(measure, &series);
        html.push_str(&subheading(&chart.title));
        html.push_str(&chart.svg());
        html.push_str(&table(&series).html());
    }
    html
}

/// The measurements in the order of the file.
fn measures(results: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for series in &results.series {
        if !names.contains(&series.measure.as_str()) {
            names.push(&series.measure);
        }
    }
    names
}

/// The series of a measurement, the best first.
fn sorted<'a>(results: &'a Results, measure: &str) -> Vec<&'a Series> {
    let mut series: Vec<_> = results.series.iter().filter(|series| series.measure == measure).collect();
    // A measurement that failed has no median, and stands last.
    let key = |series: &Series| match series.median() {
        median if !median.is_finite() => f64::INFINITY,
        median if higher_is_better(series) => -median,
        median => median,
    };
    series.sort_by(|one, other| key(one).total_cmp(&key(other)));
    series
}

fn higher_is_better(series: &Series) -> bool {
    series.unit == "Mpps"
}

fn chart(measure: &str, series: &[&Series]) -> Chart {
    let bar = |series: &&Series| {
        let mut text = number(series.median());
        if series.disturbed > 0 {
            text = format!("{text} ({} of {} disturbed)", series.disturbed, series.rounds.len());
        }
        let colour = if series.ours { OURS } else { PEER };
        Bar { label: series.program.clone(), value: series.median(), spread: Some(series.spread()), colour, text }
    };
    let unit = series.first().map_or("", |series| &series.unit);
    let better = if series.first().is_some_and(|series| higher_is_better(series)) { "higher" } else { "lower" };
    Chart {
        title: format!("{measure} (ours and peers, this run)"),
        axis: format!("{unit}, {better} is better"),
        legend: vec![(OURS, "ours"), (PEER, "peer")],
        reference: None,
        groups: vec![Group { name: String::new(), bars: series.iter().map(bar).collect() }],
    }
}

fn table(series: &[&Series]) -> Table {
    let unit = series.first().map_or("", |series| &series.unit);
    let has_tail = series.iter().any(|series| !series.p99.is_empty());
    let mut columns = vec![("program", None), ("whose", None), ("median", None), ("lowest", None), ("highest", None)];
    if has_tail {
        columns.push(("p99", None));
    }
    columns.extend([("rounds", None), ("disturbed", None)]);
    let p99 = if has_tail { "; p99: median of the rounds' 99th percentiles" } else { "" };
    let mut table = Table::new(&format!("{unit}, measured in this run{p99}"), &columns);
    for series in series {
        let origin = if series.ours { Origin::Ours } else { Origin::Peer };
        let [low, high] = series.spread();
        let mut cells = vec![series.program.clone(), origin.name().to_owned()];
        cells.extend([series.median(), low, high].map(number));
        if has_tail {
            cells.push(number(median(&series.p99)));
        }
        cells.extend([series.rounds.len(), series.disturbed].map(|count| count.to_string()));
        table.row(cells);
    }
    table
}

/// States how spind compares with the programs nearest to it.
#[must_use]
pub fn ratios(results: &Results) -> Vec<String> {
    let (polling, adaptive) = (Peer::Spind("spin").name(), Peer::Spind("adaptive").name());
    let (bare, blocking) = (Peer::AfXdpPolling.name(), Peer::AfXdpBlocking.name());
    let throughputs = [64, 1500].map(|size| Measure::Throughput(size).name());
    let mut lines = Vec::new();
    for peer in [bare.clone(), Peer::Testpmd("af_xdp").name()] {
        lines.extend(throughputs.iter().map(|measure| ratio(results, &polling, &peer, measure)));
    }
    for size in [64, 1500] {
        lines.push(difference(results, &polling, &bare, &Measure::BackToBack(size).name()));
    }
    lines.push(ratio(results, &adaptive, &blocking, &Measure::Paused(64).name()));
    lines
}

/// Both series, if both have rounds.
fn pair<'a>(results: &'a Results, program: &str, other: &str, measure: &str) -> Option<[&'a Series; 2]> {
    let pair = [results.find(program, measure)?, results.find(other, measure)?];
    pair.iter().all(|series| !series.rounds.is_empty()).then_some(pair)
}

/// Combines the figures of each round.
fn by_round([one, other]: [&Series; 2], combine: fn(f64, f64) -> f64) -> Vec<f64> {
    one.rounds.iter().zip(&other.rounds).map(|(one, other)| combine(*one, *other)).collect()
}

/// Lowest and highest figure of the rounds, the number of rounds, and that of rounds that were disturbed.
fn rounds(figures: &[f64], pair: [&Series; 2]) -> String {
    let low = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let high = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let [one, other] = pair.map(|series| series.disturbed);
    let disturbed = if one + other > 0 { format!("; disturbed rounds: {one} and {other}") } else { String::new() };
    let plural = if figures.len() == 1 { "" } else { "s" };
    format!("{} to {} in {} round{plural}{disturbed}", number(low), number(high), figures.len())
}

fn ratio(results: &Results, program: &str, other: &str, measure: &str) -> String {
    let Some(pair) = pair(results, program, other, measure) else {
        return format!("{program} / {other}, {measure}: not measured");
    };
    let rounds = rounds(&by_round(pair, |one, other| one / other), pair);
    let mean = number(pair[0].ratio_to(pair[1]));
    format!("{program} / {other}, {measure}: {mean} (geometric mean of rounds; {rounds})")
}

fn difference(results: &Results, program: &str, other: &str, measure: &str) -> String {
    let Some(pair) = pair(results, program, other, measure) else {
        return format!("{program} minus {other}, {measure}: not measured");
    };
    let differences = by_round(pair, |one, other| one - other);
    let (unit, rounds) = (&pair[0].unit, rounds(&differences, pair));
    let median = number(median(&differences));
    format!("{program} minus {other}, {measure}: {median} {unit} (median of rounds; {rounds})")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{ratios, section, sorted};
    use crate::peers::machine::Machine;
    use crate::peers::results::{Results, Series};

    /// A made-up series.
    pub(crate) fn series(program: &str, measure: &str, rounds: &[f64]) -> Series {
        let unit = if measure.starts_with("throughput") { "Mpps" } else { "µs" };
        Series {
            program: program.to_owned(),
            ours: program.starts_with("spind"),
            measure: measure.to_owned(),
            unit: unit.to_owned(),
            rounds: rounds.to_vec(),
            p99: if unit == "µs" { rounds.iter().map(|round| round * 2.0).collect() } else { Vec::new() },
            p999: Vec::new(),
            disturbed: 0,
        }
    }

    /// Made-up results.
    pub(crate) fn results(series: Vec<Series>) -> Results {
        let machine = Machine {
            processor: "P <1>".to_owned(),
            cores: 2,
            kernel: "6.1".to_owned(),
            commit: "abc".to_owned(),
            date: "2026-01-01".to_owned(),
        };
        let missing = vec![("testpmd <x>".to_owned(), "apt install".to_owned())];
        Results { command: "spin-bench-wire".to_owned(), machine, series, missing }
    }

    #[test]
    fn ratios_and_differences_are_of_rounds() {
        let lines = ratios(&results(vec![
            series("spind, idle spin", "throughput, 64 B", &[2.0, 8.0]),
            series("bare AF_XDP, polling", "throughput, 64 B", &[1.0, 1.0]),
            series("spind, idle spin", "round trip, 64 B", &[5.0, 9.0, 6.0]),
            series("bare AF_XDP, polling", "round trip, 64 B", &[4.0, 5.0, 6.0]),
            series("spind, idle adaptive", "round trip after 2 ms, 64 B", &[30.0]),
            Series { disturbed: 1, ..series("bare AF_XDP, blocking", "round trip after 2 ms, 64 B", &[20.0]) },
        ]));
        assert_eq!(
            lines,
            [
                "spind, idle spin / bare AF_XDP, polling, throughput, 64 B: 4.00 (geometric mean of rounds; 2.00 to 8.00 in 2 rounds)",
                "spind, idle spin / bare AF_XDP, polling, throughput, 1500 B: not measured",
                "spind, idle spin / testpmd net_af_xdp, throughput, 64 B: not measured",
                "spind, idle spin / testpmd net_af_xdp, throughput, 1500 B: not measured",
                "spind, idle spin minus bare AF_XDP, polling, round trip, 64 B: 1.00 µs (median of rounds; 0.000 to 4.00 in 3 rounds)",
                "spind, idle spin minus bare AF_XDP, polling, round trip, 1500 B: not measured",
                "spind, idle adaptive / bare AF_XDP, blocking, round trip after 2 ms, 64 B: 1.50 (geometric mean of rounds; 1.50 to 1.50 in 1 round; disturbed rounds: 0 and 1)",
            ]
        );
    }

    #[test]
    fn the_best_program_stands_first() {
        let results = results(vec![
            series("a", "throughput, 64 B", &[1.0]),
            series("none", "throughput, 64 B", &[]),
            series("b", "throughput, 64 B", &[3.0]),
            series("a", "round trip, 64 B", &[7.0]),
            series("b", "round trip, 64 B", &[9.0]),
        ]);
        let names =
            |measure| sorted(&results, measure).iter().map(|series| series.program.as_str()).collect::<Vec<_>>();
        assert_eq!(names("throughput, 64 B"), ["b", "a", "none"]);
        assert_eq!(names("round trip, 64 B"), ["a", "b"]);
    }

    #[test]
    fn a_section_shows_medians_tails_and_disturbances() {
        let disturbed = Series { disturbed: 2, ..series("p <&>", "round trip, 64 B", &[7.0, 8.0, 9.0]) };
        let html = section(&results(vec![disturbed]));
        assert!(html.contains("8.00 (2 of 3 disturbed)") && html.contains("p &lt;&amp;&gt;"), "{html}");
        assert!(html.contains("<td class=\"n\">16.0</td>") && !html.contains("p <&>"), "{html}");
        assert!(html.contains("testpmd &lt;x&gt;: not measured: apt install"), "{html}");
    }
}
