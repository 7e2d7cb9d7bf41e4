//! The statistics block that PsPIN's simulator prints at its end, over the whole life of the engine.

use std::fmt;
use std::time::Duration;

use spin_abi::control::LatencyInfo;
use spin_abi::counters::Counter;
use spin_pspin::counts::Counts;

use crate::telemetry::latency::Latencies;

/// The data of the statistics block, which [`fmt::Display`] prints.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// The sum of all counters, of the engine and its contexts.
    pub counts: Counts,
    /// Latencies of packets and handlers.
    pub latencies: Latencies,
    /// The time from the first batch received to the last one finished.
    pub active: Duration,
}

impl Statistics {
    /// Adds the statistics of another thread that ran at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.latencies.merge(&other.latencies);
        self.active = self.active.max(other.active);
    }
}

fn ratio(total: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total / count as f64 }
}

fn gbit_per_s(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / time.as_nanos() as f64 }
}

/// Prints the quantiles, unless nothing was measured.
fn quantiles(f: &mut fmt::Formatter<'_>, name: &str, latency: &LatencyInfo) -> fmt::Result {
    let LatencyInfo { count, p50_ns, p99_ns, p999_ns, .. } = latency;
    if *count == 0 {
        return Ok(());
    }
    writeln!(f, "\t{name}: p50: {p50_ns} ns; p99: {p99_ns} ns; p99.9: {p999_ns} ns")
}

const LINE: &str = "----------------------------------------";

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |counter| self.counts.get(counter);
        let (rx, rx_bytes) = (count(Counter::RxPackets), count(Counter::RxBytes));
        let (tx, tx_bytes) = (count(Counter::TxPackets), count(Counter::TxBytes));
        let [total, queueing, handler] = self.latencies.infos();
        writeln!(f, "###### Statistics ######")?;
        writeln!(f, "NIC inbound engine:")?;
        writeln!(f, "\tPackets: {rx}; Bytes: {rx_bytes}")?;
        writeln!(f, "\tAvg packet length: {:.3} B", ratio(rx_bytes as f64, rx))?;
        writeln!(f, "\tFeedback throughput: {:.3} Gbit/s (arrival time)", gbit_per_s(rx_bytes, self.active))?;
        writeln!(
            f,
            "\tPacket latency: avg: {:.3} ns; min: {} ns; max: {} ns (per batch)",
            ratio(total.sum_ns as f64, total.count),
            total.min_ns,
            total.max_ns
        )?;
        quantiles(f, "Packet latency", &total)?;
        quantiles(f, "Queueing (sampled)", &queueing)?;
        quantiles(f, "Handlers (sampled)", &handler)?;
        writeln!(f, "\tHER stalls: {}", count(Counter::HerStalls))?;
        writeln!(f, "{LINE}")?;
        writeln!(f, "NIC outbound engine:")?;
        writeln!(f, "\tCommands: {}; Packets: {tx}; Bytes: {tx_bytes}", count(Counter::CommandsSend))?;
        writeln!(f, "\tAvg packet length: {:.3} B", ratio(tx_bytes as f64, tx))?;
        writeln!(f, "\tThroughput: {:.3} Gbit/s", gbit_per_s(tx_bytes, self.active))?;
        writeln!(f, "{LINE}")?;
        let (written, read) = (count(Counter::DmaToHostBytes), count(Counter::DmaFromHostBytes));
        let (dma, direct) = (count(Counter::CommandsDma), count(Counter::CommandsHostDirect));
        writeln!(f, "PCIe Slave:")?;
        writeln!(f, "\tCommands: {dma} DMA, {direct} HostDirect")?;
        writeln!(f, "\tWrites: {written} Bytes ({:.3} Gbit/s)", gbit_per_s(written, self.active))?;
        writeln!(f, "\tReads: {read} Bytes ({:.3} Gbit/s)", gbit_per_s(read, self.active))?;
        writeln!(f, "{LINE}")?;
        writeln!(f, "Counters:")?;
        for counter in Counter::ALL.iter().filter(|&&counter| count(counter) > 0) {
            writeln!(f, "\t{}: {} ({})", counter.name(), count(*counter), counter.meaning())?;
        }
        write!(f, "{LINE}")
    }
}

#[cfg(test)]
mod tests {
    use super::Statistics;
    use crate::telemetry::latency::Latencies;
    use spin_abi::counters::Counter;
    use spin_pspin::counts::Counts;
    use std::time::Duration;

    #[test]
    fn prints_averages_and_survives_zeros() {
        let mut counts = Counts::default();
        let empty = Statistics { counts: counts.clone(), latencies: Latencies::default(), active: Duration::ZERO };
        assert!(empty.to_string().contains("Packets: 0; Bytes: 0"));
        counts.add(Counter::RxPackets, 2);
        counts.add(Counter::RxBytes, 300);
        assert!(!empty.to_string().contains("p50"), "{empty}");
        let mut latencies = Latencies::default();
        latencies.record_total(1, Duration::from_nanos(10));
        latencies.record_total(1, Duration::from_nanos(20));
        latencies.sample(Duration::from_nanos(5), Duration::from_nanos(7));
        let text = Statistics { counts, latencies, active: Duration::from_nanos(2400) }.to_string();
        assert!(text.contains("Avg packet length: 150.000 B"), "{text}");
        assert!(text.contains("Feedback throughput: 1.000 Gbit/s"), "{text}");
        assert!(text.contains("avg: 15.000 ns; min: 10 ns; max: 20 ns"), "{text}");
        assert!(
            text.contains("\tPacket latency: p50: 10 ns; p99: 20 ns; p99.9: 20 ns\n\tQueueing (sampled): p50: 5 ns"),
            "{text}"
        );
    }
}
