//! A round: every program with every measurement of its protocol.

use std::path::Path;

use super::icmp::Ping;
use super::program::{Handler, Program};
use crate::peers::lab::{Lab, LabError};
use crate::peers::machine::Load;
use crate::peers::measure::{Effort, Figures, Measure};
use crate::peers::results::{About, Results};

/// Programs that echo UDP datagrams.
pub const UDP: [Program; 3] =
    [Program::XdpTx, Program::InHook(Handler::UdpPingpong), Program::InUserSpace(Handler::UdpPingpong)];
/// Programs that answer pings.
pub const ICMP: [Program; 3] =
    [Program::Kernel, Program::InHook(Handler::IcmpEcho), Program::InUserSpace(Handler::IcmpEcho)];
/// Lengths of frames of throughput.
pub const THROUGHPUT: [u16; 3] = [64, 512, 1500];
/// Lengths of frames of round trips.
pub const ROUND_TRIP: [u16; 2] = [64, 1500];

/// The pings that are measured.
pub const PINGS: [Ping; 4] = [
    Ping { len: ROUND_TRIP[0], paused: false },
    Ping { len: ROUND_TRIP[1], paused: false },
    Ping { len: ROUND_TRIP[0], paused: true },
    Ping { len: ROUND_TRIP[1], paused: true },
];

/// A measurement.
#[derive(Clone, Copy)]
enum Case {
    Udp(Measure),
    Icmp(Ping),
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Udp(measure) => measure.name(),
            Self::Icmp(ping) => ping.name(),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Udp(measure) => measure.unit(),
            Self::Icmp(_) => "µs",
        }
    }

    fn take(self, lab: &Lab, effort: Effort) -> Result<Figures, LabError> {
        match self {
            Self::Udp(measure) => measure.take(lab, effort),
            Self::Icmp(ping) => ping.take(lab, effort),
        }
    }
}

/// A lab, and what to measure there.
pub struct Bench<'b> {
    /// The lab.
    pub lab: &'b Lab,
    /// Folder of the handlers' images.
    pub images: &'b Path,
    /// Packets of a round.
    pub effort: Effort,
}

impl Bench<'_> {
    /// Takes a round. A handler that spind refuses is named in the results, and not tried again.
    ///
    /// # Errors
    /// A program does not start or does not answer.
    pub fn round(&self, results: &mut Results) -> Result<(), LabError> {
        let throughput = THROUGHPUT.map(Measure::Throughput).into_iter();
        let udp: Vec<_> = throughput.chain(ROUND_TRIP.map(Measure::BackToBack)).map(Case::Udp).collect();
        let icmp = PINGS.map(Case::Icmp);
        for (programs, cases) in [(UDP, &udp[..]), (ICMP, &icmp[..])] {
            for program in programs {
                self.measure(program, cases, results)?;
            }
        }
        Ok(())
    }

    fn measure(&self, program: Program, cases: &[Case], results: &mut Results) -> Result<(), LabError> {
        if results.missing.iter().any(|(missing, _)| *missing == program.name()) {
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        let answering = match program.start(self.lab, folder.path(), self.images) {
            Err(LabError::Command { said, .. }) => {
                results.missing.push((program.name(), said));
                return Ok(());
            }
            started => started?,
        };
        for case in cases {
            let before = Load::now();
            let figures = case.take(self.lab, self.effort)?;
            let disturbed = Load::now().disturbed_since(before);
            let (program, ours) = (program.name(), program.is_ours());
            results.add(About { program, ours, measure: case.name(), unit: case.unit() }, figures, disturbed);
        }
        answering.stop(self.lab, folder.path())
    }
}
