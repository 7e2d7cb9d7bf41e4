//! `spin-bench`: what a handler costs, in memory and on a wire.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use spin_abi::control::Install;
use spin_abi::handler_names::HandlerNames;
use spin_abi::units::parse_size;
use spin_bench::any_handler::budget::sustained_from;
use spin_bench::any_handler::context::{Context, Packets};
use spin_bench::any_handler::memory::Cost;
use spin_bench::any_handler::wire::{OnWire, measure};
use spin_bench::engine::lab::Failure;
use spin_bench::pcap;
use spin_bench::peers::lab::{ADDRESSES, Lab, SERVER_MAC};
use spin_bench::peers::peer::{Peer, install};
use spin_bench::pktgen::settings::flows;
use spin_bench::raw::parse_mac;
use spin_nic::afxdp::mac_address;
use spin_nic::traffic::{Header, Pattern, Plan};

/// Line rates of the budget in Gbit/s.
const LINE_RATES: [f64; 4] = [10.0, 25.0, 100.0, 200.0];

/// Measure a handler: cost per packet in memory, the line rates it sustains, and rate and round trips on a wire. Without interfaces
/// the wire is a veth between two namespaces, which needs root and two cores.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Handler image
    #[arg(value_name = "HANDLER.elf")]
    image: PathBuf,
    /// Rule of the packets, as for `spinctl install`; may be given more than once
    #[arg(long, required = true)]
    rule: Vec<String>,
    /// End-of-message rule, as for `spinctl install`
    #[arg(long)]
    eom: Option<String>,
    /// Message key, as for `spinctl install`
    #[arg(long)]
    key: Option<String>,
    /// Handlers of the image, as for `spinctl install`
    #[arg(long, value_name = "hh=NAME,ph=NAME,th=NAME")]
    handlers: Option<HandlerNames>,
    /// Host memory in bytes (suffixes K, M, G)
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    host_mem: u64,
    /// Handler memory in bytes (suffixes K, M)
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    handler_mem: u64,
    /// Scratchpad in each cluster's L1 in bytes (suffixes K, M)
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    scratchpad: u64,
    /// Destination port of the datagrams that are sent
    #[arg(long, value_name = "PORT", default_value_t = 9999)]
    port: u16,
    /// Lengths of frames without check sequence
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',', default_value = "64,256,512,1024,1514")]
    size: Vec<u16>,
    /// Number of flows
    #[arg(long, value_name = "N", default_value_t = 64)]
    flows: u32,
    /// Frames of a capture instead of datagrams; in memory only
    #[arg(long, value_name = "FILE")]
    frames: Option<PathBuf>,
    /// Cores of the budget [default: those of this machine]
    #[arg(long, value_name = "N")]
    cores: Option<usize>,
    /// Two connected interfaces of this host for the wire: that of the load, and that of spind
    #[arg(long, value_names = ["LOAD", "SPIND"], num_args = 2)]
    ifaces: Option<Vec<String>>,
    /// Measure in memory only
    #[arg(long)]
    no_wire: bool,
    /// Time in memory for each length, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    time: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spin-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let context = args.context()?;
    println!("in memory, on one core:");
    println!(
        "{:>9} {:>10} {:>8} {:>14} {:>14} {:>8}",
        "frame B", "ns/packet", "Mpps", "instructions", "command bytes", "sent"
    );
    let costs = context.costs(&args.size, Duration::from_millis(args.time))?;
    costs.iter().for_each(print_cost);
    println!(
        "instructions: as --instruction-limit counts them, a command as 32, a send as 1000 more, 8 copied bytes as one"
    );
    print_budget(&costs, args.cores);
    if !args.no_wire && args.frames.is_none() {
        let wire = args.on_wire(&context)?;
        print_wire(&wire, args.size[0]);
    }
    Ok(())
}

impl Args {
    fn context(&self) -> Result<Context, Failure> {
        let image = fs::read(&self.image).map_err(|error| format!("{}: {error}", self.image.display()))?;
        let packets = match &self.frames {
            Some(file) => {
                let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
                let frames = pcap::read(&bytes).map_err(|error| format!("{}: {error}", file.display()))?;
                if frames.is_empty() {
                    return Err(format!("{}: no packets", file.display()).into());
                }
                Packets::Captured(frames)
            }
            None => Packets::Plan(Box::new(self.plan(parse_mac(SERVER_MAC).unwrap_or_default(), [2, 0, 0, 0, 0, 1])?)),
        };
        let name = self.image.file_stem().map_or_else(|| "handler".into(), |name| name.to_string_lossy().into_owned());
        let install = Install {
            name,
            rules: self.rule.clone(),
            eom: self.eom.clone(),
            key: self.key.clone(),
            handlers: self.handlers.clone(),
            host_mem: self.host_mem,
            handler_mem: u32::try_from(self.handler_mem)?,
            scratchpad: u32::try_from(self.scratchpad)?,
            ..Install::default()
        };
        Ok(Context { image, install, packets })
    }

    fn plan(&self, to: [u8; 6], from: [u8; 6]) -> Result<Plan, Failure> {
        let [source, destination] = ADDRESSES.map(str::parse);
        Ok(Plan {
            macs: [to, from],
            source: source?,
            destination: destination?,
            port: self.port,
            lengths: self.size.clone(),
            flows: flows(self.flows, None, 1),
            header: Header::None,
            run: 1,
        })
    }

    /// The options of `spinctl install` that make the same context.
    fn options(&self) -> Vec<String> {
        let mut options: Vec<String> = self.rule.iter().flat_map(|rule| ["--rule".to_owned(), rule.clone()]).collect();
        let mut option = |name: &str, value: Option<String>| {
            options.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        };
        option("--eom", self.eom.clone());
        option("--key", self.key.clone());
        option("--handlers", self.handlers.as_ref().map(ToString::to_string));
        option("--host-mem", Some(self.host_mem.to_string()));
        option("--handler-mem", Some(self.handler_mem.to_string()));
        option("--scratchpad", Some(self.scratchpad.to_string()));
        options
    }

    fn on_wire(&self, context: &Context) -> Result<OnWire, Failure> {
        let lab = match &self.ifaces {
            Some(links) => Lab::on([links[0].clone(), links[1].clone()])?,
            None => Lab::new()?,
        };
        let folder = tempfile::tempdir()?;
        let spind = Peer::Spind("spin").start_empty(&lab, folder.path())?;
        let socket = folder.path().join("spind.sock");
        install(&lab, &socket, &self.image, &self.options())?;
        let stats = || {
            let mut command = Command::new(lab.program("spinctl"));
            command.arg("--socket").arg(&socket).args(["stats", "--json"]);
            command
        };
        let wire = lab.at_client(|| {
            let to = if self.ifaces.is_some() {
                mac_address(lab.server_link())?
            } else {
                parse_mac(SERVER_MAC).unwrap_or_default()
            };
            let plan = self.plan(to, mac_address(lab.client_link())?)?;
            let pattern = Pattern::new(Plan { lengths: vec![self.size[0]], ..plan })?;
            measure(lab.client_link(), pattern, &context.install.name, stats)
        })?;
        drop(spind);
        wire
    }
}

fn print_cost(cost: &Cost) {
    println!(
        "{:9.0} {:10.1} {:8.3} {:14} {:14.1} {:8.2}",
        cost.length,
        cost.nanoseconds,
        1e3 / cost.nanoseconds,
        cost.instructions,
        cost.command_bytes,
        cost.sent
    );
}

fn print_budget(costs: &[Cost], cores: Option<usize>) {
    let cores = cores.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let costs: Vec<_> = costs.iter().map(|cost| (cost.length, cost.nanoseconds)).collect();
    println!("\non {cores} cores, if the NIC keeps up:");
    for rate in LINE_RATES {
        match sustained_from(&costs, cores as f64, rate) {
            Some(length) => println!("  sustains {rate} Gbit/s from {length:.0} B"),
            None => println!("  does not sustain {rate} Gbit/s with these lengths"),
        }
    }
}

fn print_wire(wire: &OnWire, length: u16) {
    println!("\non the wire, frames of {length} B, one core for spind and one for the load:");
    println!("  {:.3} Mpps without loss, after {} trials", wire.rate.rate / 1e6, wire.rate.trials);
    if wire.rate.sender_bound {
        println!("  the sender did not reach some of the rates: spind may be faster");
    }
    match wire.round_trip {
        Some(latency) => {
            let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
            let (p50, p99, p999) = (us(latency.p50), us(latency.p99), us(latency.p999));
            println!("  round trip µs: p50 {p50:.1}, p99 {p99:.1}, p99.9 {p999:.1}");
        }
        None => println!("  the handler sends no replies, so there are no round trips"),
    }
}
