//! The line rates that a cost per packet sustains: the paper's figure 6, with measured times.

use crate::pktgen::settings::WIRE_OVERHEAD;

/// Time in nanoseconds after which the next frame of this length arrives, at a line rate in Gbit/s.
fn interval(length: f64, rate: f64) -> f64 {
    8.0 * (length + f64::from(WIRE_OVERHEAD)) / rate
}

/// The shortest length from which `cores` cores sustain a line rate in Gbit/s. `costs` are lengths, ascending, with nanoseconds per packet
/// on one core; between them cost is taken to be linear. `None`: not even for the longest.
#[must_use]
pub fn sustained_from(costs: &[(f64, f64)], cores: f64, rate: f64) -> Option<f64> {
    // Above 0: the packet takes longer than its share of the wire.
    let excess = |&(length, cost): &(f64, f64)| cost / cores - interval(length, rate);
    let last = costs.last().filter(|last| excess(last) <= 0.0)?;
    let slow = costs.iter().rposition(|cost| excess(cost) > 0.0);
    let Some(slow) = slow else { return costs.first().map(|&(length, _)| length) };
    let (below, above) = (&costs[slow], costs.get(slow + 1).unwrap_or(last));
    // The excess is linear in the length, too.
    let share = excess(below) / (excess(below) - excess(above));
    Some(below.0 + share * (above.0 - below.0))
}

#[cfg(test)]
mod tests {
    use super::sustained_from;

    #[test]
    fn the_shortest_length_is_where_cost_meets_the_wire() {
        // 100 ns for any length; a 10-Gbit/s wire has a frame of 101 B every 100 ns.
        let costs = [(64.0, 100.0), (512.0, 100.0), (1500.0, 100.0)];
        let from = |cores, rate| sustained_from(&costs, cores, rate).map(f64::round);
        assert_eq!(from(1.0, 10.0), Some(101.0));
        assert_eq!(from(2.0, 10.0), Some(64.0), "with 50 ns all lengths");
        assert_eq!(from(1.0, 100.0), Some(1226.0));
        assert_eq!(from(1.0, 400.0), None);
        assert_eq!(sustained_from(&[], 1.0, 1.0), None);
    }

    #[test]
    fn a_cost_that_grows_faster_than_the_wire_is_never_sustained() {
        let costs = [(64.0, 60.0), (1500.0, 3000.0)];
        assert_eq!(sustained_from(&costs, 1.0, 10.0), None);
    }
}
