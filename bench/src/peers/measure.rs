//! What is measured of a program, with `spin-pktgen` at the other end of the wire.

use serde_json::Value;

use super::lab::{ADDRESSES, Lab, LabError, PORT, SERVER_MAC, output};

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Replies per second under more load than the program can take, for frames of this length.
    Throughput(u16),
    /// Round trip of a packet that follows the reply to the previous one at once, for frames of this length.
    BackToBack(u16),
    /// Round trip of a packet after a pause of 2 ms.
    Paused(u16),
}

/// Most frames of a burst of throughput.
const BURST: u32 = 1 << 20;
/// The pause in microseconds.
pub const PAUSE: u32 = 2000;

/// How many packets a round sends.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Frames of throughput.
    pub frames: u32,
    /// Round trips without pauses.
    pub round_trips: u32,
    /// Round trips with pauses.
    pub paused_round_trips: u32,
}

impl Default for Effort {
    fn default() -> Self {
        // Shorter rounds of throughput differ more.
        Self { frames: 4 * BURST, round_trips: 4000, paused_round_trips: 200 }
    }
}

/// The figures of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Mpps, or the median round trip in µs.
    pub main: f64,
    /// 99th and 99.9th percentile of the round trip in µs.
    pub tail: Option<[f64; 2]>,
}

impl Measure {
    /// Name in tables and results.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Throughput(len) => format!("throughput, {len} B"),
            Self::BackToBack(len) => format!("round trip, {len} B"),
            Self::Paused(len) => format!("round trip after 2 ms, {len} B"),
        }
    }

    /// Unit of the figures.
    #[must_use]
    pub fn unit(self) -> &'static str {
        if matches!(self, Self::Throughput(_)) { "Mpps" } else { "µs" }
    }

    /// Measures the program that is running in the lab.
    ///
    /// # Errors
    /// The load does not run, or the program does not answer.
    pub fn take(self, lab: &Lab, effort: Effort) -> Result<Figures, LabError> {
        let pktgen = lab.program("spin-pktgen");
        let client = lab.client_link();
        let Effort { frames, round_trips, paused_round_trips } = effort;
        let burst = frames.min(BURST);
        let common =
            format!("--to-mac {SERVER_MAC} --to {} --from {} --port {PORT} --json", ADDRESSES[1], ADDRESSES[0]);
        let command = match self {
            Self::Throughput(len) => format!(
                "{pktgen} send {client} --backend live --sink {client} --sink-backend count --size {len} --burst {burst} --count {frames} {common}"
            ),
            Self::BackToBack(len) => {
                format!("{pktgen} ping {client} --backend xdp --size {len} --count {round_trips} {common}")
            }
            Self::Paused(len) => format!(
                "{pktgen} ping {client} --backend xdp --size {len} --count {paused_round_trips} --pause {PAUSE} {common}"
            ),
        };
        let text = output(&mut lab.client(&command))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| LabError::Output(error, text))?;
        let number = |value: &Value| value.as_f64().filter(|&number| number > 0.0).ok_or(LabError::Silent(self.name()));
        let us = |name: &str| Ok::<_, LabError>(number(&value["latency"][name])? / 1e3);
        Ok(match self {
            Self::Throughput(_) => Figures { main: number(&value["received_rate"])? / 1e6, tail: None },
            Self::BackToBack(_) | Self::Paused(_) => {
                Figures { main: us("p50")?, tail: Some([us("p99")?, us("p999")?]) }
            }
        })
    }
}
