//! `spin-traffic`: the demo's clients, servers and checks. Results go to standard output, errors to standard error. The
//! exit status is 0 only if all requested checks passed.
#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand, ValueEnum};
use spin_bench::capture::{self, Parties};
use spin_bench::odd::{self, Addresses};
use spin_bench::outcome::{Outcome, table};
use spin_bench::{counters, pcap, ping, raw, tcp, udp};
use std::error::Error;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(version, about = "Traffic that checks itself")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send UDP datagrams and check every reply byte for byte
    UdpClient(UdpClient),
    /// Echo every UDP datagram through the kernel's sockets
    UdpEcho {
        /// Address to listen on
        #[arg(long)]
        listen: SocketAddr,
        /// Poll the socket instead of sleeping until something arrives
        #[arg(long)]
        poll: bool,
    },
    /// Write bytes to a TCP connection; print their number and SHA-256
    TcpSend {
        /// Address to connect to
        #[arg(long)]
        to: SocketAddr,
        /// Bytes to write
        #[arg(long, default_value_t = 100_000_000)]
        bytes: u64,
        /// Longest single wait, in seconds
        #[arg(long, default_value_t = 60)]
        timeout: u64,
    },
    /// Read one TCP connection to its end; print number of bytes and SHA-256
    TcpReceive {
        /// Address to listen on
        #[arg(long)]
        listen: SocketAddr,
        /// Longest single wait, in seconds
        #[arg(long, default_value_t = 60)]
        timeout: u64,
    },
    /// Parse the output of ping from standard input
    Ping {
        #[command(flatten)]
        verdict: Verdict,
    },
    /// Print outcomes of spind next to those of other echoes
    Table {
        /// Files of outcomes through spind
        #[arg(long, num_args = 1.., required = true)]
        spind: Vec<PathBuf>,
        /// Files of outcomes of a bare AF_XDP socket that sleeps when idle
        #[arg(long, num_args = 0..)]
        bare: Vec<PathBuf>,
        /// Files of outcomes of the kernel's own echo
        #[arg(long, num_args = 0..)]
        kernel: Vec<PathBuf>,
    },
    /// Send tagged, padded, fragmented and truncated frames, and frames with options
    OddFrames(OddFrames),
    /// Check that captures contain exactly one correct reply to every request
    CheckCapture {
        /// Captures, read in order
        #[arg(required = true)]
        captures: Vec<PathBuf>,
        /// MAC address of the server
        #[arg(long, value_parser = mac)]
        server_mac: [u8; 6],
        /// UDP port of the echo service
        #[arg(long, default_value_t = 9999)]
        udp_port: u16,
    },
    /// Print one counter of the output of `spinctl stats --json` on standard input
    Counter {
        /// Name of the counter
        name: String,
        /// Context to read; engine and NIC unless given
        #[arg(long)]
        context: Option<String>,
    },
}

#[derive(Args)]
struct UdpClient {
    /// Address of the server
    #[arg(long)]
    to: SocketAddr,
    /// Number of datagrams per size
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Datagram sizes in bytes, run in order
    #[arg(long, value_delimiter = ',', default_value = "18,256,1472")]
    size: Vec<usize>,
    /// Maximum number of unanswered datagrams
    #[arg(long, default_value_t = 1)]
    window: usize,
    /// Milliseconds after which a datagram counts as lost
    #[arg(long, default_value_t = 1000)]
    timeout: u64,
    /// Minimum interval between two datagrams, in microseconds
    #[arg(long, default_value_t = 0)]
    interval: u64,
    /// Seed of the content
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    verdict: Verdict,
}

#[derive(Args)]
struct OddFrames {
    /// Interface to send from
    #[arg(long)]
    iface: String,
    /// Source address of the frames
    #[arg(long)]
    from: Ipv4Addr,
    /// Destination address of the frames
    #[arg(long)]
    to: Ipv4Addr,
    /// Destination MAC address
    #[arg(long, value_parser = mac)]
    to_mac: [u8; 6],
    /// Destination UDP port
    #[arg(long, default_value_t = 9999)]
    udp_port: u16,
}

/// Condition for exit status 0.
#[derive(Args)]
struct Verdict {
    /// Expected replies
    #[arg(long, value_enum, default_value_t = Expect::All)]
    expect: Expect,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Expect {
    /// Exactly one correct reply to each request
    All,
    /// No reply to any request
    None,
    /// No condition
    Any,
}

/// Whether all checks passed; an error means that they could not be made.
type Verdicts = Result<bool, Box<dyn Error>>;

fn mac(text: &str) -> Result<[u8; 6], String> {
    raw::parse_mac(text).ok_or_else(|| format!("{text} is not a MAC address such as 02:00:00:00:00:01"))
}

impl Verdict {
    fn give(&self, outcomes: &[Outcome]) -> Verdicts {
        if self.json {
            println!("{}", serde_json::to_string_pretty(outcomes)?);
        } else {
            print!("{}", table(outcomes, &[]));
        }
        Ok(outcomes.iter().all(|outcome| match self.expect {
            Expect::All => outcome.all_answered(),
            Expect::None => outcome.none_answered(),
            Expect::Any => true,
        }))
    }
}

impl UdpClient {
    fn run(&self) -> Verdicts {
        let mut outcomes = Vec::new();
        for size in &self.size {
            outcomes.push(udp::run(&udp::Plan {
                to: self.to,
                count: self.count,
                size: *size,
                window: self.window,
                timeout: Duration::from_millis(self.timeout),
                interval: Duration::from_micros(self.interval),
                seed: self.seed,
            })?);
        }
        self.verdict.give(&outcomes)
    }
}

impl OddFrames {
    fn run(&self) -> Verdicts {
        let addresses = Addresses {
            from_mac: spin_nic::afxdp::mac_address(&self.iface)?,
            to_mac: self.to_mac,
            from: self.from,
            to: self.to,
            udp_port: self.udp_port,
        };
        let socket = raw::PacketSocket::open(&self.iface)?;
        let frames = odd::frames(addresses);
        for odd in &frames {
            socket.send(&odd.frame).map_err(|error| format!("frame \"{}\": {error}", odd.what))?;
        }
        let answerable = frames.iter().filter(|odd| odd.answer).count();
        println!("{} frames sent, {answerable} of them to be answered", frames.len());
        Ok(true)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn outcomes(paths: &[PathBuf]) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let mut all = Vec::new();
    for path in paths {
        let more: Vec<Outcome> =
            serde_json::from_slice(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))?;
        all.extend(more);
    }
    Ok(all)
}

fn standard_input() -> Result<String, std::io::Error> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn check_capture(captures: &[PathBuf], parties: Parties) -> Verdicts {
    let mut frames = Vec::new();
    for path in captures {
        frames.extend(pcap::read(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    let report = capture::check(frames.iter().map(Vec::as_slice), parties);
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(report.holds())
}

fn udp_echo(listen: SocketAddr, poll: bool) -> Verdicts {
    let socket = UdpSocket::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    socket.set_nonblocking(poll)?;
    println!("listening on {}", socket.local_addr()?);
    udp::echo(&socket)?;
    Ok(true)
}

fn tcp_receive(listen: SocketAddr, timeout: u64) -> Verdicts {
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    println!("{}", serde_json::to_string(&tcp::receive(&listener, Duration::from_secs(timeout))?)?);
    Ok(true)
}

fn run(command: Command) -> Verdicts {
    match command {
        Command::UdpClient(client) => client.run(),
        Command::UdpEcho { listen, poll } => udp_echo(listen, poll),
        Command::TcpSend { to, bytes, timeout } => {
            println!("{}", serde_json::to_string(&tcp::send(to, bytes, 1, Duration::from_secs(timeout))?)?);
            Ok(true)
        }
        Command::TcpReceive { listen, timeout } => tcp_receive(listen, timeout),
        Command::Ping { verdict } => verdict.give(&[ping::parse(&standard_input()?)?]),
        Command::Table { spind, bare, kernel } => {
            let others = [("bare AF_XDP, blocking", outcomes(&bare)?), ("kernel", outcomes(&kernel)?)];
            let measured: Vec<_> = others.into_iter().filter(|(_, rows)| !rows.is_empty()).collect();
            print!("{}", table(&outcomes(&spind)?, &measured));
            Ok(true)
        }
        Command::OddFrames(frames) => frames.run(),
        Command::CheckCapture { captures, server_mac, udp_port } => {
            check_capture(&captures, Parties { server: server_mac, udp_port })
        }
        Command::Counter { name, context } => {
            println!("{}", counters::counter(&standard_input()?, context.as_deref(), &name)?);
            Ok(true)
        }
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("spin-traffic: {error}");
            ExitCode::from(2)
        }
    }
}
