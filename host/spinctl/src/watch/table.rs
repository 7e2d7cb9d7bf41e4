//! Rates as text: a row for each engine, thread and context, then the counters that rose.

use std::io::{self, Write};

use libspin::ContextInfo;

use super::rates::{Interval, Section, unit};
use crate::show::HIDDEN;

/// Columns of the table.
const COLUMNS: [&str; 6] = ["packets/s", "tasks/s", "drops/s", "sent/s", "rx bit/s", "tx bit/s"];

/// Prints a block for one interval. Contexts without activity are left out.
pub fn block(out: &mut impl Write, interval: &Interval<'_>) -> io::Result<()> {
    write!(out, "{:<24}", format!("in {:.3} s", interval.seconds))?;
    COLUMNS.iter().try_for_each(|column| write!(out, " {column:>14}"))?;
    writeln!(out)?;
    row(out, "engine", interval.rates(Section::Engine).as_deref())?;
    let threads = interval.now.threads.len();
    if threads > 1 {
        for index in 0..threads {
            row(out, &format!("thread {index}"), interval.rates(Section::Thread(index)).as_deref())?;
        }
    }
    for ContextInfo { context: id, name, hidden, .. } in &interval.now.contexts {
        let name = if *hidden { HIDDEN } else { name };
        let rates = interval.rates(Section::Context(*id));
        if rates.as_ref().is_none_or(|rates| rates.iter().any(|(_, rate)| *rate > 0.0)) {
            row(out, &format!("context {id} ({name})"), rates.as_deref())?;
        }
    }
    for (title, section) in [("nic", Section::Nic), ("engine", Section::Engine)] {
        for (name, rate) in interval.rates(section).unwrap_or_default().iter().filter(|(_, rate)| *rate > 0.0) {
            writeln!(out, "{title}: {name:<24} {rate:>16.1} {}", unit(name))?;
        }
    }
    Ok(())
}

fn row(out: &mut impl Write, title: &str, rates: Option<&[(String, f64)]>) -> io::Result<()> {
    write!(out, "{title:<24}")?;
    match rates {
        Some(rates) => columns(rates).iter().try_for_each(|rate| match rate {
            Some(rate) => write!(out, " {rate:>14.1}"),
            None => write!(out, " {:>14}", "-"),
        })?,
        None => COLUMNS.iter().try_for_each(|_| write!(out, " {:>14}", "-"))?,
    }
    writeln!(out)
}

/// The values of [`COLUMNS`]. `None`: the section does not count that.
fn columns(rates: &[(String, f64)]) -> [Option<f64>; COLUMNS.len()] {
    let of = |name: &str| rates.iter().find(|(known, _)| known == name).map(|(_, rate)| *rate);
    let part = |is_part: fn(&str) -> bool| rates.iter().filter(move |(name, _)| is_part(name)).map(|(_, rate)| rate);
    // The sum of no numbers would be -0.0.
    let sum = |is_part| Some(part(is_part).fold(0.0, |sum, rate| sum + rate));
    [
        // Packets that a context did not queue are not its own.
        of("rx_packets").or_else(|| of("matched")),
        sum(|name| name.ends_with("_runs")),
        sum(|name| name.starts_with("drop_") && unit(name) == "/s"),
        of("tx_packets"),
        of("rx_bytes"),
        of("tx_bytes"),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Interval, block};
    use libspin::{ContextInfo, Counters, Stats};

    fn stats(rounds: u64, last: u64) -> Stats {
        let of = |id, name: &str, runs| ContextInfo {
            context: id,
            name: name.into(),
            counters: Counters::from_iter([
                ("matched", 3 * runs),
                ("payload_runs", runs),
                ("header_runs", runs),
                ("drop_share", runs),
                ("drop_verdict", runs),
                ("drop_verdict_bytes", 9 * runs),
                ("tx_packets", runs),
                ("tx_bytes", 100 * runs),
            ]),
            ..ContextInfo::default()
        };
        Stats {
            engine: Counters::from_iter([
                ("rx_packets", 4 * rounds),
                ("rx_bytes", 400 * rounds),
                ("rx_time_ns", rounds),
            ]),
            nic_counters: Counters::from_iter([("rx_frames", 6 * rounds), ("tx_frames", 0)]),
            contexts: vec![of(1, "echo", rounds), of(2, "idle", 7), ContextInfo { hidden: true, ..of(3, "", last) }],
            ..Stats::default()
        }
    }

    #[test]
    fn a_block_has_rates_of_all_that_was_active() {
        let (before, now) = (stats(10, 9), stats(20, 1));
        let mut out = Vec::new();
        block(&mut out, &Interval { before: &before, now: &now, seconds: 2.0 }).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "in 2.000 s packets/s tasks/s drops/s sent/s rx bit/s tx bit/s",
            "engine 20.0 0.0 0.0 - 16000.0 -",
            "context 1 (echo) 15.0 10.0 10.0 5.0 - 4000.0",
            "context 3 (-) - - - - - -",
            "nic: rx_frames 30.0 /s",
            "engine: rx_packets 20.0 /s",
            "engine: rx_bytes 16000.0 bit/s",
            "engine: rx_time_ns 5.0 ns/s",
        ];
        assert_eq!(rows, expected);
    }
}
