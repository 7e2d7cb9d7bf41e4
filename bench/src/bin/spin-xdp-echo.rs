//! `spin-xdp-echo`: an echo of pings and UDP datagrams on a bare AF_XDP socket, without an engine, to compare with.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use spin_abi::rules::RuleSet;
use spin_bench::pktgen::port::{ICMP_RULE, udp_rules};
use spin_bench::reflect::reflect;
use spin_nic::affinity::pin;
use spin_nic::{AfXdp, AfXdpConfig, Queue, TxQueue};

/// Answer pings, and send UDP datagrams back to their senders, with a bare AF_XDP socket: what a program without an engine
/// costs on the same wire. Stop it with ^C.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Interface
    #[arg(value_name = "IF")]
    interface: String,
    /// UDP port of the echo
    #[arg(long, value_name = "PORT", default_value_t = 9999)]
    port: u16,
    /// Sleep in the kernel while nothing arrives [default: poll]
    #[arg(long)]
    block: bool,
    /// Frames received at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    batch: usize,
    /// Core to run on
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-xdp-echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    args.core.map_or(Ok(()), pin)?;
    let mut nic = AfXdp::open(&AfXdpConfig::new(&args.interface))?;
    // ICMP packets that are no pings are lost.
    nic.steering().set_rules(&RuleSet::list(&[&udp_rules(args.port)[..], &[ICMP_RULE]].concat()))?;
    eprintln!("echo on {}", nic.describe());
    let (mut received, mut replies) = (Vec::with_capacity(args.batch), Vec::with_capacity(args.batch));
    while !stop.load(Relaxed) {
        nic.receive(&mut received, args.batch);
        let idle = received.is_empty();
        for mut frame in received.drain(..) {
            if reflect(&mut frame) {
                replies.push(frame);
            } else {
                nic.recycle(frame);
            }
        }
        nic.send(&mut replies);
        // What the ring has no room for is lost.
        for frame in replies.drain(..) {
            nic.recycle(frame);
        }
        nic.flush()?;
        if idle && args.block {
            nic.wait(None, Duration::from_millis(100))?;
        }
    }
    Ok(())
}
