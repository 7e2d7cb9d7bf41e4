//! What `spin-pktgen` does on the lab's veth by itself: rate, pacing and search.

use std::path::Path;

use serde_json::Value;

use super::lab::{ADDRESSES, Lab, LabError, PORT, SERVER_MAC, output};
use super::peer::{Peer, Running};
use super::results::Series;

/// Rounds of the highest rate, and searches.
const ROUNDS: usize = 5;
/// Frames of a round of the live backend.
const FRAMES: u32 = 1 << 20;
/// Rate of pacing, in packets per second.
const PACE: f64 = 100e3;
/// What sends, with its name.
const LIVE: [&str; 2] = ["live", "spin-pktgen, live frames"];
const XDP: [&str; 2] = ["xdp", "spin-pktgen, AF_XDP"];
const PACKET: [&str; 2] = ["packet", "spin-pktgen, AF_PACKET"];

/// Measures the highest rate of each backend, its pacing, and searches. `folder` takes files of programs.
///
/// # Errors
/// A program does not run, or sends nothing.
pub fn measure(lab: &Lab, folder: &Path) -> Result<Vec<Series>, LabError> {
    let counting = Running::count(lab, folder)?;
    let live = format!("--count {FRAMES} --burst {FRAMES}");
    let mut all = Vec::new();
    for (backend, limit) in [(LIVE, live.as_str()), (XDP, "--seconds 1"), (PACKET, "--seconds 1")] {
        let rounds = (0..ROUNDS).map(|_| Ok(send(lab, backend, limit, "sent_rate")? / 1e6));
        all.push(series(backend, "generator: highest rate, 64 B", "Mpps", rounds.collect::<Result<_, LabError>>()?));
    }
    for backend in [XDP, PACKET] {
        let rate = send(lab, backend, &format!("--rate {PACE} --seconds 10"), "sent_rate")?;
        let deviation = 100.0 * (rate - PACE).abs() / PACE;
        all.push(series(backend, "generator: deviation from 100 kpps in 10 s", "%", vec![deviation]));
    }
    drop(counting);
    let echo = Peer::XdpTx.start_empty(lab, folder)?;
    let client = lab.client_link();
    let search = format!("--sink {client} --sink-backend xdp --search 100k-2M --precision 2 --trial 0.2");
    let rounds = (0..ROUNDS).map(|_| Ok(send(lab, XDP, &search, "rate")? / 1e6));
    let found = rounds.collect::<Result<_, LabError>>()?;
    all.push(series(XDP, "generator: highest rate without loss, kernel XDP_TX, 64 B", "Mpps", found));
    drop(echo);
    Ok(all)
}

/// Runs it. Returns a number of its result.
fn send(lab: &Lab, [backend, name]: [&str; 2], options: &str, figure: &str) -> Result<f64, LabError> {
    let command = format!(
        "{} send {} --backend {backend} --to-mac {SERVER_MAC} --to {} --from {} --port {PORT} --json {options}",
        lab.program("spin-pktgen"),
        lab.client_link(),
        ADDRESSES[1],
        ADDRESSES[0]
    );
    let text = output(&mut lab.client(&command))?;
    let result: Value = serde_json::from_str(&text).map_err(|error| LabError::Output(error, text))?;
    result[figure].as_f64().filter(|&figure| figure > 0.0).ok_or(LabError::Silent(name.to_owned()))
}

fn series([_, program]: [&str; 2], measure: &str, unit: &str, rounds: Vec<f64>) -> Series {
    Series {
        program: program.to_owned(),
        ours: true,
        measure: measure.to_owned(),
        unit: unit.to_owned(),
        rounds,
        p99: Vec::new(),
        p999: Vec::new(),
        disturbed: 0,
    }
}
