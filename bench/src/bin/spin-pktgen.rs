//! `spin-pktgen`: sends test traffic on an interface, and measures loss, order and latency where it arrives.
#![forbid(unsafe_code)]

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use spin_bench::pktgen::clock::SECOND;
use spin_bench::pktgen::ping::{Rhythm, ping};
use spin_bench::pktgen::port::{PacketPort, Port, PortError, XdpPort};
use spin_bench::pktgen::run::{Limits, Link, Progress, Report, Sink, Transmitter};
use spin_bench::pktgen::schedule::Schedule;
use spin_bench::pktgen::search::{Rules, Trial, search};
use spin_bench::pktgen::settings::{Lengths, Rate, flows, wire_bits};
use spin_bench::pktgen::source::Source;
use spin_bench::raw::parse_mac;
use spin_nic::affinity::pin;
use spin_nic::afxdp::mac_address;
use spin_nic::pcap::read_all;
use spin_nic::traffic::pattern::MAX_FRAME;
use spin_nic::traffic::{Header, Hook, HookProgram, LiveSender, Pattern, Plan};

/// Exit status when a limit of the command line was not kept.
const LIMIT_BROKEN: u8 = 3;

type Failure = Box<dyn std::error::Error>;

/// Send test traffic on an interface, and measure loss, order and latency where it arrives.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send packets at a rate that does not depend on replies
    Send(Box<Send>),
    /// Send one packet at a time, each after the reply to the previous one
    Ping(Box<Ping>),
    /// Print frames as a configuration of netsniff-ng's trafgen. They have numbers of their own only up to --count
    Trafgen(Trafgen),
    /// Count and drop the packets of a sender in the XDP hook, until ^C
    Count(Receive),
    /// Send all UDP datagrams back to their senders in the XDP hook, until ^C
    Reflect(Receive),
    /// Accept frames that a veth peer redirects, as `send --backend live` does, until ^C
    Accept(Receive),
}

/// How frames leave and enter the program.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// AF_XDP sockets
    Xdp,
    /// A packet socket: works on every interface
    Packet,
    /// BPF_PROG_TEST_RUN on live frames: the fastest, sends only
    Live,
    /// A counting XDP program: the fastest, receives only
    Count,
}

/// Workloads of YCSB that get and set.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Workload {
    A,
    B,
    C,
}

/// The packets.
#[derive(Args)]
struct Packets {
    /// Interface to send on
    #[arg(value_name = "IF")]
    interface: String,
    /// Destination MAC address
    #[arg(long, value_name = "MAC", default_value = "ff:ff:ff:ff:ff:ff", value_parser = |text: &str| parse_mac(text).ok_or("expected six bytes, such as 02:00:00:00:00:01"))]
    to_mac: [u8; 6],
    /// Destination address
    #[arg(long, value_name = "IP", default_value = "10.77.0.2")]
    to: Ipv4Addr,
    /// Source address of the first 16384 flows; the next ones have the next address
    #[arg(long, value_name = "IP", default_value = "10.77.0.1")]
    from: Ipv4Addr,
    /// Destination port
    #[arg(long, value_name = "PORT", default_value_t = 9999)]
    port: u16,
    /// Bytes of a frame without its check sequence: one length, lengths with weights (64:7,1514:1), or imix
    #[arg(long, value_name = "LENGTHS", default_value = "64")]
    size: Lengths,
    /// Number of flows: source ports from 1024 on, then addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    flows: u32,
    /// Choose flows by Zipf's law with this exponent [default: each equally often]
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// Send SLMP messages of this many packets
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..))]
    message: Option<u32>,
    /// Send requests to kvstore, as YCSB's workload a (half of them set), b (5 % set) or c (all get). Keys are flows
    #[arg(long, value_enum, value_name = "WORKLOAD", conflicts_with = "message")]
    ycsb: Option<Workload>,
    /// Seed of orders, and of the mark by which a sink knows the packets of a sender
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Core to run on
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Send {
    #[command(flatten)]
    packets: Packets,
    /// What sends
    #[arg(long, value_enum, default_value_t = Backend::Packet)]
    backend: Backend,
    /// Packets per second (100k), bits per second on the wire (10Gbit), or max
    #[arg(long, value_name = "RATE", default_value = "max")]
    rate: Rate,
    /// Time to send, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Number of packets [default: no limit]
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Send the frames of a capture, again and again, with its timing unless --rate is given
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "flows", "zipf", "message", "ycsb"])]
    replay: Option<PathBuf>,
    /// Frames of a call of the live backend
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    burst: Option<u32>,
    /// Interface where packets arrive; may be the sending one
    #[arg(long, value_name = "IF")]
    sink: Option<String>,
    /// What receives
    #[arg(long, value_enum, default_value_t = Backend::Packet)]
    sink_backend: Backend,
    /// Search for the highest rate without loss between two rates, such as 10k-2M
    #[arg(long, value_name = "LOW-HIGH", requires = "sink", value_parser = bounds)]
    search: Option<[f64; 2]>,
    /// Width of the last interval of a search, in percent of the rate
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    precision: f64,
    /// Time of each trial of a search, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    trial: f64,
    /// Loss that a trial of a search may have, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    tolerance: f64,
    /// Exit with status 3 when more is lost, in percent
    #[arg(long, value_name = "PERCENT", requires = "sink")]
    max_loss: Option<f64>,
    /// Exit with status 3 when fewer packets per second arrive, or are sent if there is no sink
    #[arg(long, value_name = "PPS")]
    min_rate: Option<f64>,
    /// Exit with status 3 when the 99th percentile of the latency is longer, in microseconds
    #[arg(long, value_name = "US", requires = "sink")]
    max_p99: Option<f64>,
}

#[derive(Args)]
struct Ping {
    #[command(flatten)]
    packets: Packets,
    /// What sends and receives
    #[arg(long, value_enum, default_value_t = Backend::Packet)]
    backend: Backend,
    /// Number of packets
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    count: u64,
    /// Pause after each reply, in microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    pause: u64,
}

#[derive(Args)]
struct Trafgen {
    #[command(flatten)]
    packets: Packets,
    /// Number of frames, which trafgen repeats
    #[arg(long, value_name = "N", default_value_t = 64)]
    count: u32,
}

#[derive(Args)]
struct Receive {
    /// Interface
    #[arg(value_name = "IF")]
    interface: String,
    /// Seed of the sender whose packets are counted
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Whether that sender sends SLMP messages
    #[arg(long)]
    messages: bool,
    /// Whether that sender sends requests to kvstore
    #[arg(long, conflicts_with = "messages")]
    ycsb: bool,
    /// Time to run, in seconds [default: until ^C]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(LIMIT_BROKEN),
        Err(error) => {
            eprintln!("spin-pktgen: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all limits were kept.
fn run(cli: Cli) -> Result<bool, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    match cli.command {
        Command::Send(send) => send.run(&stop),
        Command::Ping(ping) => ping.run(),
        Command::Trafgen(trafgen) => trafgen.run(),
        Command::Count(receive) => receive.run(HookProgram::Count, &stop),
        Command::Reflect(receive) => receive.run(HookProgram::Reflect, &stop),
        Command::Accept(receive) => receive.run(HookProgram::Accept, &stop),
    }
}

/// Low and high rate of a search.
fn bounds(text: &str) -> Result<[f64; 2], String> {
    let expected = "expected two rates, such as 10k-2M";
    let (low, high) = text.split_once('-').ok_or(expected)?;
    let rate = |text: &str| {
        let rate: Rate = text.parse().map_err(|_| expected)?;
        rate.packets(64.0).ok_or(expected)
    };
    let bounds = [rate(low)?, rate(high)?];
    if bounds[0] < bounds[1] { Ok(bounds) } else { Err("the first rate must be the lower one".to_owned()) }
}

/// The mark of a run.
fn mark(seed: u64) -> u16 {
    // Any bits of a random number do.
    fastrand::Rng::with_seed(seed).u16(..)
}

impl Packets {
    fn pattern(&self) -> Result<Pattern, Failure> {
        Ok(Pattern::new(Plan {
            macs: [self.to_mac, mac_address(&self.interface)?],
            source: self.from,
            destination: self.to,
            port: self.port,
            lengths: self.size.table(self.seed),
            flows: flows(self.flows, self.zipf, self.seed),
            header: self.header(),
            run: mark(self.seed),
        })?)
    }

    fn header(&self) -> Header {
        match (self.message, self.ycsb) {
            (Some(packets), _) => Header::Slmp { packets },
            (None, Some(Workload::A)) => Header::KeyValue { sets: 50 },
            (None, Some(Workload::B)) => Header::KeyValue { sets: 5 },
            (None, Some(Workload::C)) => Header::KeyValue { sets: 0 },
            (None, None) => Header::None,
        }
    }

    fn open(&self, interface: &str, backend: Backend) -> Result<Box<dyn Port>, Failure> {
        match backend {
            Backend::Xdp => Ok(Box::new(XdpPort::open(interface, self.port)?)),
            Backend::Packet => Ok(Box::new(PacketPort::open(interface)?)),
            Backend::Live => Err("the live backend only sends".into()),
            Backend::Count => Err("the count backend only receives".into()),
        }
    }

    fn pin(&self) -> Result<(), Failure> {
        self.core.map_or(Ok(()), pin).map_err(Into::into)
    }
}

impl Send {
    fn run(&self, stop: &AtomicBool) -> Result<bool, Failure> {
        self.packets.pin()?;
        let (mut link, replayed) = self.link()?;
        let mean = self.packets.size.mean();
        if let Some(bounds) = self.search {
            return self.search(&mut link, bounds, mean, stop);
        }
        let schedule = match (self.rate.packets(mean), replayed) {
            (None, Some(schedule)) => schedule,
            (rate, _) => Schedule::of(rate),
        };
        let limits = Limits { time: (self.seconds * SECOND as f64) as u64, packets: self.count.unwrap_or(u64::MAX) };
        let mut last = Progress { seconds: 0.0, sent: 0, received: 0 };
        let report = link.run(&schedule, limits, |progress| {
            if !self.packets.json {
                let rate = |now: u64, before: u64| (now - before) as f64 / (progress.seconds - last.seconds) / 1e6;
                let (sent, received) = (rate(progress.sent, last.sent), rate(progress.received, last.received));
                eprintln!("{:5.0} s  sent {sent:.3} Mpps  received {received:.3} Mpps", progress.seconds);
            }
            last = progress;
            !stop.load(Relaxed)
        })?;
        self.check_live(&report)?;
        self.print(&report, mean);
        Ok(self.keeps_limits(&report))
    }

    /// Opens everything. Returns the schedule of a capture, too.
    fn link(&self) -> Result<(Link, Option<Schedule>), Failure> {
        let pattern = self.packets.pattern()?;
        let transmitter = match self.backend {
            Backend::Live if self.replay.is_some() => return Err("the live backend cannot replay a capture".into()),
            Backend::Live => Transmitter::Live(LiveSender::new(&self.packets.interface, &pattern)?),
            backend => Transmitter::Port(self.packets.open(&self.packets.interface, backend)?),
        };
        let sink = match &self.sink {
            None => Sink::None,
            Some(sink) if self.sink_backend == Backend::Count => {
                Sink::Count(Hook::attach(sink, HookProgram::Count, &pattern)?)
            }
            Some(sink) if *sink == self.packets.interface && self.sink_backend == self.backend => Sink::Same,
            Some(sink) => Sink::Port(self.packets.open(sink, self.sink_backend)?),
        };
        let (source, schedule) = match &self.replay {
            None => (Source::Pattern(Box::new(pattern)), None),
            Some(file) => {
                let read = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
                let packets = read_all(&read).map_err(|error| format!("{}: {error}", file.display()))?;
                if packets.is_empty() {
                    return Err(format!("{}: no packets", file.display()).into());
                }
                let times: Vec<u64> = packets.iter().map(|packet| packet.time).collect();
                let frames = packets.into_iter().map(|packet| packet.data).collect();
                (Source::Capture { frames, written: 0 }, Some(Schedule::captured(&times)))
            }
        };
        Ok((Link { transmitter, sink, source, burst: self.burst }, schedule))
    }

    fn search(&self, link: &mut Link, bounds: [f64; 2], mean: f64, stop: &AtomicBool) -> Result<bool, Failure> {
        let rules = Rules {
            bounds,
            precision: self.precision / 100.0,
            tolerance: self.tolerance / 100.0,
            seconds: self.trial,
            trials: 3,
        };
        let found = search(&rules, |rate, seconds| -> Result<Trial, PortError> {
            let limits = Limits { time: (seconds * SECOND as f64) as u64, packets: u64::MAX };
            let report = link.run(&Schedule::of(Some(rate)), limits, |_| !stop.load(Relaxed))?;
            let counts = report.counts.unwrap_or_default();
            if !self.packets.json {
                eprintln!("{:9.0} pps for {seconds:.1} s: sent {} lost {}", rate, counts.sent, counts.lost);
            }
            if stop.load(Relaxed) {
                return Err(PortError::Packet(std::io::ErrorKind::Interrupted.into()));
            }
            Ok(Trial { sent: counts.sent, lost: counts.lost, reached: report.sent_rate })
        })?;
        if self.packets.json {
            println!("{}", serde_json::to_string(&found)?);
        } else {
            let bits = wire_bits(found.rate, mean) / 1e9;
            println!(
                "highest rate: {:.3} Mpps, {bits:.3} Gbit/s on the wire, {} trials",
                found.rate / 1e6,
                found.trials
            );
            if found.sender_bound {
                println!("the sender did not reach some of the rates: the device may be faster");
            }
        }
        Ok(self.min_rate.is_none_or(|least| found.rate >= least))
    }

    /// A live sender whose frames were all refused is a mistake of set-up.
    fn check_live(&self, report: &Report) -> Result<(), Failure> {
        if self.backend != Backend::Live || report.sent_rate > 0.0 || report.refused == 0 {
            return Ok(());
        }
        let name = &self.packets.interface;
        Err(format!(
            "{name} accepts no redirected frames. If it is a veth, its peer needs an XDP program: \
             spin-pktgen accept PEER. Else its driver may not support XDP_REDIRECT: use --backend xdp or packet"
        )
        .into())
    }

    fn print(&self, report: &Report, mean: f64) {
        if self.packets.json {
            println!("{}", json!(report));
            return;
        }
        let bits = wire_bits(report.sent_rate, mean) / 1e9;
        println!("sent {:.3} Mpps for {:.2} s, {bits:.3} Gbit/s on the wire", report.sent_rate / 1e6, report.seconds);
        if report.refused > 0 {
            println!("{} more frames were refused by the interface", report.refused);
        }
        print_received(report);
    }

    fn keeps_limits(&self, report: &Report) -> bool {
        let loss = report.counts.map_or(0.0, |counts| 100.0 * counts.lost as f64 / counts.sent.max(1) as f64);
        let rate = report.received_rate.unwrap_or(report.sent_rate);
        let p99 = report.latency.map_or(f64::INFINITY, |latency| latency.p99 as f64 / 1e3);
        self.max_loss.is_none_or(|most| loss <= most)
            && self.min_rate.is_none_or(|least| rate >= least)
            && self.max_p99.is_none_or(|most| p99 <= most)
    }
}

fn print_received(report: &Report) {
    if let Some(counts) = report.counts {
        println!(
            "{} sent, {} received, {} lost, {} duplicated, {} reordered",
            counts.sent, counts.received, counts.lost, counts.duplicates, counts.reordered
        );
    }
    if report.missed > 0 {
        println!("{} of the lost arrived, but were not taken in time: slow down, or use a faster sink", report.missed);
    }
    if let Some(latency) = report.latency {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        println!(
            "latency µs: min {:.1}, p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
            us(latency.min),
            us(latency.p50),
            us(latency.p99),
            us(latency.p999),
            us(latency.max)
        );
    }
}

impl Ping {
    fn run(&self) -> Result<bool, Failure> {
        self.packets.pin()?;
        let mut source = Source::Pattern(Box::new(self.packets.pattern()?));
        let mut port = self.packets.open(&self.packets.interface, self.backend)?;
        let rhythm = Rhythm {
            packets: self.count,
            pause: Duration::from_micros(self.pause),
            timeout: Duration::from_millis(200),
            any_reply: false,
        };
        let report = ping(&mut *port, &mut source, rhythm)?;
        if self.packets.json {
            println!("{}", json!(report));
        } else {
            print_received(&report);
        }
        Ok(report.counts.is_some_and(|counts| counts.received > 0))
    }
}

impl Trafgen {
    fn run(&self) -> Result<bool, Failure> {
        let mut pattern = self.packets.pattern()?;
        let mut frame = [0; MAX_FRAME];
        for _ in 0..self.count {
            let len = pattern.write(0, &mut frame);
            let bytes: Vec<String> = frame[..len].iter().map(|byte| format!("{byte:#04x}")).collect();
            println!("{{ {} }}", bytes.join(", "));
        }
        Ok(true)
    }
}

impl Receive {
    fn run(&self, program: HookProgram, stop: &AtomicBool) -> Result<bool, Failure> {
        let plan = Plan {
            macs: [[0; 6]; 2],
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
            port: 0,
            lengths: vec![1514],
            flows: vec![0],
            header: match (self.messages, self.ycsb) {
                (true, _) => Header::Slmp { packets: 1 },
                (false, true) => Header::KeyValue { sets: 0 },
                (false, false) => Header::None,
            },
            run: mark(self.seed),
        };
        let hook = Hook::attach(&self.interface, program, &Pattern::new(plan)?)?;
        eprintln!("attached to {}", self.interface);
        let mut passed = 0;
        while !stop.load(Relaxed) && self.seconds.is_none_or(|seconds| passed < seconds * 10) {
            thread::sleep(Duration::from_millis(100));
            passed += 1;
        }
        let [packets, bytes] = hook.counts()?;
        match (program, self.json) {
            (HookProgram::Accept, _) => {}
            (_, true) => println!("{}", json!({ "packets": packets, "bytes": bytes })),
            (_, false) => println!("{packets} packets, {bytes} B"),
        }
        Ok(true)
    }
}
