//! Opens the NIC of a configuration.

use std::sync::Arc;

use spin_nic::afxdp::{AfXdp, AfXdpConfig, Filter, Mode as AttachMode};
use spin_nic::frame::CHUNK;
use spin_nic::memory::MemoryQueue;
use spin_nic::pcap::PcapQueue;
use spin_nic::{NicError, Queue};

use crate::control::config::{Config, Nic, XdpMode};
use crate::cores::packet_channels::PacketChannels;
use crate::settings::Mode;
use spin_pspin::hpu::memory::saturate;

/// Number of frames of a queue left for sending when contexts hold their maximum.
const TX_FRAMES: usize = 1024;
/// Size of a huge page, in bytes. Frames fill whole huge pages.
const HUGE_PAGE: usize = 2 << 20;
/// Number of frames in flight between the two ends of the loopback NIC.
const LOOPBACK_FRAMES: usize = 1024;

/// A NIC.
#[derive(Default)]
pub struct Nics {
    /// A queue for each thread that receives.
    pub queues: Vec<Box<dyn Queue>>,
    /// The far ends of the loopback NIC's queues.
    pub far: Vec<MemoryQueue>,
    /// The XDP program of an interface.
    pub filter: Option<Arc<Filter>>,
}

/// Opens the NIC.
///
/// # Errors
/// See [`NicError`].
pub fn open(config: &Config) -> Result<Nics, NicError> {
    Ok(match &config.nic {
        Nic::Interface(interface) => {
            let mode = match config.xdp_mode {
                XdpMode::Auto => AttachMode::Auto,
                XdpMode::Native => AttachMode::Native,
                XdpMode::Generic => AttachMode::Generic,
            };
            let settings = AfXdpConfig { mode, cores: queue_cores(config), ..AfXdpConfig::new(interface) };
            let frames_per_queue = frames_per_queue(config, &settings);
            let settings = AfXdpConfig { frames_per_queue, ..settings };
            let parts = AfXdp::open_parts(&settings, receiving_threads(config))?;
            let filter = parts.first().map(|part| part.filter().clone());
            let queues = parts.into_iter().map(|part| Box::new(part) as Box<dyn Queue>).collect();
            Nics { queues, far: Vec::new(), filter }
        }
        Nic::Loopback => {
            let pairs = (0..receiving_threads(config)).map(|_| spin_nic::memory::pair(LOOPBACK_FRAMES));
            let (near, far): (Vec<_>, _) = pairs.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
            Nics { queues: near.into_iter().map(|near| Box::new(near) as Box<dyn Queue>).collect(), far, filter: None }
        }
        Nic::Pcap { input, output } => {
            Nics { queues: vec![Box::new(PcapQueue::open(input, output)?)], ..Nics::default() }
        }
    })
}

/// The number of threads with a queue of their own.
fn receiving_threads(config: &Config) -> usize {
    if config.mode == Mode::RunToCompletion { config.workers.len() } else { 1 }
}

/// The core of the machine on which each queue's memory is made: that of its thread.
fn queue_cores(config: &Config) -> Vec<usize> {
    match config.mode {
        Mode::RunToCompletion => config.workers.iter().filter_map(|worker| worker.runs_on).collect(),
        Mode::Pipeline => config.first_core.into_iter().collect(),
    }
}

/// Number of frames for a queue: enough to receive and to send, even when contexts hold their maximum of waiting
/// packets.
fn frames_per_queue(config: &Config, settings: &AfXdpConfig) -> u32 {
    let hers = config.sizes.hers as usize;
    let others = config.cores.len().saturating_sub(1);
    let held = match config.mode {
        Mode::RunToCompletion => hers,
        Mode::Pipeline => {
            let own = if config.local_share == 0 { 0 } else { hers };
            own + PacketChannels::most(others, config.sizes.hers)
        }
    };
    let all = settings.rx_ring as usize + held + TX_FRAMES;
    saturate(all.next_multiple_of(HUGE_PAGE / CHUNK) as u64).max(settings.frames_per_queue)
}
