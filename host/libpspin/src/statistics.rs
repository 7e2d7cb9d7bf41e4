//! Counters, and the report printed at the end.

use std::fmt;

use crate::host::Times;
use crate::time::{BEAT, Picos};

/// Traffic over a bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Beats of at most [`BEAT`] bytes.
    pub beats: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Traffic {
    /// Counts one beat.
    pub const fn count(&mut self, bytes: usize) {
        self.beats += 1;
        self.bytes += bytes as u64;
    }
}

/// Counters of a simulation, and the times from which throughputs are computed.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Released packets.
    pub packets: u64,
    /// Bytes of released packets.
    pub bytes: u64,
    /// Time when the first packet arrived.
    first_arrival: Option<Picos>,
    /// Time when the last packet was released.
    last_feedback: Picos,
    latency_sum: u128,
    latency: Option<(Picos, Picos)>,
    /// Cycles that the inbound engine waited for room.
    pub her_stalls: u64,
    /// Send commands.
    pub send_commands: u64,
    /// Sent packets.
    pub sent: u64,
    /// Bytes of sent packets.
    pub sent_bytes: u64,
    /// Departure time of the last packet.
    last_sent: Picos,
    /// Writes to host memory.
    pub slave_write: Traffic,
    /// Reads from host memory.
    pub slave_read: Traffic,
    /// Time of the bus's last use.
    pub slave_last: Picos,
    /// Bytes of NIC memory that the program wrote.
    pub master_written: u64,
    /// Bytes of NIC memory that the program read.
    pub master_read: u64,
    /// Refused commands.
    pub refused_commands: u64,
    /// Handlers that were ended.
    pub faults: u64,
}

impl Totals {
    /// Counts a packet's arrival.
    pub fn arrived(&mut self, now: Picos) {
        self.first_arrival.get_or_insert(now);
    }

    /// Counts the release of a packet of `bytes` bytes.
    pub fn released(&mut self, bytes: usize, times: Times) {
        let latency = times.feedback.saturating_sub(times.nic_arrival);
        self.packets += 1;
        self.bytes += bytes as u64;
        self.last_feedback = times.feedback;
        self.latency_sum += u128::from(latency);
        let (min, max) = self.latency.unwrap_or((latency, latency));
        self.latency = Some((min.min(latency), max.max(latency)));
    }

    /// Counts a sent packet.
    pub const fn left(&mut self, bytes: usize, now: Picos) {
        self.sent += 1;
        self.sent_bytes += bytes as u64;
        self.last_sent = now;
    }

    /// Returns the throughput from the first arrival to `end`, in gigabits per second.
    fn throughput(&self, bytes: u64, end: Picos) -> f64 {
        let time = end.saturating_sub(self.first_arrival.unwrap_or(0));
        if time == 0 { 0.0 } else { bytes as f64 * 8000.0 / time as f64 }
    }
}

fn ratio(total: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { total / count as f64 }
}

const fn nanoseconds(time: Picos) -> f64 {
    time as f64 / 1000.0
}

const LINE: &str = "----------------------------------------";

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = self.latency.unwrap_or((0, 0));
        let average = ratio(self.latency_sum as f64, self.packets) / 1000.0;
        writeln!(f, "###### Statistics ######")?;
        writeln!(f, "Times are virtual: a clock of 1 GHz, a cycle for each instruction")?;
        writeln!(f, "NIC inbound engine:")?;
        writeln!(f, "\tPackets: {}; Bytes: {}", self.packets, self.bytes)?;
        writeln!(f, "\tAvg packet length: {:.3} B", ratio(self.bytes as f64, self.packets))?;
        let throughput = self.throughput(self.bytes, self.last_feedback);
        writeln!(f, "\tFeedback throughput: {throughput:.3} Gbit/s (arrival time)")?;
        let (min, max) = (nanoseconds(min), nanoseconds(max));
        writeln!(f, "\tPacket latency: avg: {average:.3} ns; min: {min:.3} ns; max: {max:.3} ns")?;
        writeln!(f, "\tHER stalls: {}", self.her_stalls)?;
        writeln!(f, "{LINE}")?;
        writeln!(f, "NIC outbound engine:")?;
        writeln!(f, "\tCommands: {}; Packets: {}; Bytes: {}", self.send_commands, self.sent, self.sent_bytes)?;
        writeln!(f, "\tAvg packet length: {:.3} B", ratio(self.sent_bytes as f64, self.sent))?;
        writeln!(f, "\tThroughput: {:.3} Gbit/s", self.throughput(self.sent_bytes, self.last_sent))?;
        writeln!(f, "{LINE}")?;
        writeln!(f, "PCIe Slave:")?;
        for (name, traffic) in [("Writes", self.slave_write), ("Reads", self.slave_read)] {
            let Traffic { beats, bytes } = traffic;
            let throughput = self.throughput(bytes, self.slave_last);
            writeln!(f, "\t{name}: {beats} beats of {BEAT} B at most; {bytes} Bytes; {throughput:.3} Gbit/s")?;
        }
        writeln!(f, "{LINE}")?;
        writeln!(f, "PCIe Master:")?;
        writeln!(f, "\tWritten: {} Bytes; Read: {} Bytes", self.master_written, self.master_read)?;
        write!(f, "{LINE}")?;
        if self.faults + self.refused_commands > 0 {
            write!(f, "\nHandlers ended by faults: {}; ", self.faults)?;
            write!(f, "commands not carried out: {}\n{LINE}", self.refused_commands)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;
    use crate::host::Times;

    #[test]
    fn nothing_divides_by_zero() {
        let text = Totals::default().to_string();
        assert!(text.contains("Packets: 0; Bytes: 0") && !text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn averages_and_throughputs() {
        let mut totals = Totals::default();
        totals.arrived(1000);
        totals.arrived(2000);
        totals.released(100, Times { nic_arrival: 1000, pspin_arrival: 2000, feedback: 11_000 });
        totals.released(300, Times { nic_arrival: 2000, pspin_arrival: 4000, feedback: 101_000 });
        totals.slave_write.count(64);
        totals.slave_write.count(16);
        totals.slave_last = 11_000;
        totals.left(50, 101_000);
        let text = totals.to_string();
        for part in [
            "\tPackets: 2; Bytes: 400\n",
            "\tAvg packet length: 200.000 B\n",
            "\tFeedback throughput: 32.000 Gbit/s (arrival time)\n",
            "\tPacket latency: avg: 54.500 ns; min: 10.000 ns; max: 99.000 ns\n",
            "\tThroughput: 4.000 Gbit/s\n",
            "\tWrites: 2 beats of 64 B at most; 80 Bytes; 64.000 Gbit/s\n",
        ] {
            assert!(text.contains(part), "{part}{text}");
        }
        assert!(!text.contains("faults"));
    }
}
