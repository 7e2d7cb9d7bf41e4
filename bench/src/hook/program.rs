//! The programs that answer.

use std::path::Path;
use std::process::Command;

use crate::counters::counter;
use crate::peers::lab::{Lab, LabError, PORT, output};
use crate::peers::peer::{Peer, Running, install};

/// A handler of the SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Echoes UDP datagrams.
    UdpPingpong,
    /// Answers pings.
    IcmpEcho,
}

impl Handler {
    /// Its name, without `.elf` that of its image.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UdpPingpong => "udp_pingpong",
            Self::IcmpEcho => "icmp_echo",
        }
    }

    fn rule(self) -> String {
        match self {
            Self::UdpPingpong => format!("udp dport {PORT}"),
            Self::IcmpEcho => "icmp echo".to_owned(),
        }
    }
}

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// An XDP program that exchanges addresses and ports, and returns XDP_TX.
    XdpTx,
    /// The kernel's own ICMP.
    Kernel,
    /// A handler in the hook.
    InHook(Handler),
    /// A handler in a thread that polls AF_XDP sockets.
    InUserSpace(Handler),
}

/// A program that answers. Dropping it stops it.
pub struct Answering {
    running: Option<Running>,
    program: Program,
}

/// Share of packets that must have run in the hook, in percent. A few may come before the rules change.
const IN_HOOK: u64 = 99;

impl Program {
    /// Name in tables and results.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::XdpTx => "kernel XDP_TX".to_owned(),
            Self::Kernel => "kernel".to_owned(),
            Self::InHook(handler) => format!("{}, hook", handler.name()),
            Self::InUserSpace(handler) => format!("{}, AF_XDP", handler.name()),
        }
    }

    /// Whether it is of this project.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::InHook(_) | Self::InUserSpace(_))
    }

    /// Starts it. `folder` takes its files, `images` has those of the handlers.
    ///
    /// # Errors
    /// The program does not start, or spind refuses the handler.
    pub fn start(self, lab: &Lab, folder: &Path, images: &Path) -> Result<Answering, LabError> {
        let start = |peer: Peer, handler: Option<(Handler, &str)>| {
            let running = peer.start_empty(lab, folder)?;
            if let Some((handler, tier)) = handler {
                let image = images.join(handler.name()).with_extension("elf");
                let options = ["--rule", &handler.rule(), "--name", handler.name(), "--tier", tier].map(str::to_owned);
                install(lab, &folder.join("spind.sock"), &image, &options)?;
            }
            Ok::<_, LabError>(Some(running))
        };
        let running = match self {
            Self::Kernel => None,
            Self::XdpTx => start(Peer::XdpTx, None)?,
            Self::InHook(handler) => start(Peer::SpindInHook, Some((handler, "kernel")))?,
            Self::InUserSpace(handler) => start(Peer::Spind("spin"), Some((handler, "user")))?,
        };
        Ok(Answering { running, program: self })
    }
}

impl Answering {
    /// Stops it, and checks that its packets ran where they should have.
    ///
    /// # Errors
    /// spind has other counts, or does not tell them.
    pub fn stop(self, lab: &Lab, folder: &Path) -> Result<(), LabError> {
        let Program::InHook(handler) = self.program else { return Ok(()) };
        let mut spinctl = Command::new(lab.program("spinctl"));
        let stats = output(spinctl.arg("--socket").arg(folder.join("spind.sock")).args(["stats", "--json"]))?;
        drop(self.running);
        let count = |name| counter(&stats, Some(handler.name()), name);
        let (in_hook, all) = (count("hook_runs")?, count("payload_runs")?);
        if in_hook * 100 < all * IN_HOOK { Err(LabError::NotInHook(in_hook, all)) } else { Ok(()) }
    }
}
