//! Cores that a handler needs at a line rate, as the PsPIN paper's figure 6.

use super::handlers::DEFAULT;
use super::html::{Origin, Table, heading, paragraph};
use super::published::{BUDGET_RATES, HPUS};
use super::source::{MeasuredRow, number};
use crate::pktgen::settings::WIRE_OVERHEAD;

/// Line rates in Gbit/s.
const RATES: [u32; 5] = [10, 25, 100, 200, 400];

/// Formats the section.
#[must_use]
pub fn section(rows: &[MeasuredRow]) -> String {
    let mut html = heading("Budget: cores for a line rate");
    html.push_str(&paragraph(&format!(
        "Cores needed = time × rate / (8 × (size + {WIRE_OVERHEAD})), rounded up: {WIRE_OVERHEAD} bytes are preamble, check sequence and gap. \
         The time is that of the {DEFAULT} handler alone; the engine's time per packet comes on top. \
         The published budget is the time that a packet may take on an HPU: HPUs × packet bits / rate, with {HPUS} HPUs.",
    )));
    html.push_str(&table(rows).html());
    html
}

/// Cores for packets of `size` bytes that take `time` nanoseconds each, at `rate` Gbit/s.
#[must_use]
pub fn cores(time: f64, size: usize, rate: u32) -> f64 {
    (time * f64::from(rate) / (8 * (size + usize::from(WIRE_OVERHEAD))) as f64).ceil()
}

/// Nanoseconds that a packet may take on an HPU, by the closed form of the paper.
#[must_use]
pub fn published_budget(size: usize, rate: u32) -> f64 {
    f64::from(HPUS) * (size * 8) as f64 / f64::from(rate)
}

fn table(rows: &[MeasuredRow]) -> Table {
    let rates = RATES.map(|rate| format!("cores at {rate} Gbit/s"));
    let budgets = BUDGET_RATES.map(|rate| format!("budget, ns, at {rate} Gbit/s"));
    let mut columns = vec![("handler/bytes", None), ("ns per packet", Some(Origin::Ours))];
    columns.extend(rates.iter().map(|name| (name.as_str(), Some(Origin::Ours))));
    columns.extend(budgets.iter().map(|name| (name.as_str(), Some(Origin::Published))));
    let mut table = Table::new(&format!("Cores by handler and rate, {DEFAULT}"), &columns);
    for row in rows.iter().filter(|row| row.variant == DEFAULT) {
        let Some((_, size)) = row.name_and_size() else { continue };
        let mut cells = vec![row.case.clone(), number(row.median)];
        cells.extend(RATES.map(|rate| format!("{:.0}", cores(row.median, size, rate))));
        cells.extend(BUDGET_RATES.map(|rate| number(published_budget(size, rate))));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{cores, published_budget, section};
    use crate::page::source::tests::row;

    #[test]
    fn cores_are_rounded_up() {
        // 1000 + 24 bytes take 20.48 ns at 400 Gbit/s.
        let needed = [20.48, 20.5, 40.0, 100.0].map(|time| cores(time, 1000, 400));
        assert_eq!(needed, [1.0, 2.0, 2.0, 5.0]);
        assert_eq!(cores(0.1, 64, 10), 1.0);
    }

    #[test]
    fn the_published_budget_is_the_closed_form() {
        // 32 × 512 bits / 400 Gbit/s.
        assert!((published_budget(64, 400) - 40.96).abs() < 1e-9);
        let html =
            section(&[row("reduce/1000", "jit-page", None, [100.0; 3]), row("reduce/1000", "interp", None, [7.0; 3])]);
        assert!(html.contains("<td>reduce/1000</td><td class=\"n\">100</td><td class=\"n\">1</td>"), "{html}");
        assert!(
            html.contains(
                "<td class=\"n\">3</td><td class=\"n\">5</td><td class=\"n\">1280</td><td class=\"n\">640</td>"
            ),
            "{html}"
        );
    }
}
