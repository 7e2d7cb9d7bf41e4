//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use libspin::{
    Abi, Checks, Compat, Early, Full, HandlerNames, Isolation, Lifetime, Placement, Tier, UnitCount, parse_size,
};

/// Install, list, watch and remove sPIN execution contexts of a running spind.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    /// Path of spind's control socket.
    #[arg(long, global = true, default_value = libspin::DEFAULT_SOCKET, value_name = "PATH")]
    pub socket: PathBuf,
    #[command(subcommand)]
    pub command: Command,
}

/// Form of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JsonForm {
    /// Counters as lists of pairs. Accepted for one release.
    #[value(name = "1")]
    Pairs,
    /// Counters as objects.
    #[value(name = "2")]
    Objects,
}

/// The option `--json`.
#[derive(Debug, clap::Args)]
pub struct JsonArg {
    /// Print JSON. `--json=1` prints counters as lists of pairs, as the former release did; the next one drops that.
    #[arg(long = "json", value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "2")]
    pub form: Option<JsonForm>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install a handler image as an execution context that stays until removed.
    Install(Box<InstallArgs>),
    /// List contexts in order of priority, or the memory that users take.
    List {
        #[command(flatten)]
        json: JsonArg,
        /// List users instead: what their contexts and requests take at most, in bytes. Root sees all users, others themselves.
        #[arg(long)]
        users: bool,
    },
    /// Show counters of engine, NIC and contexts, and the latest faults.
    Stats {
        #[command(flatten)]
        json: JsonArg,
        /// Explain each counter.
        #[arg(long, conflicts_with = "form")]
        explain: bool,
        /// Print rates in each interval of SECONDS, until interrupted or until spind ends [default: 1].
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = interval,
              conflicts_with = "explain")]
        watch: Option<Duration>,
        /// End after N intervals.
        #[arg(long, value_name = "N", requires = "watch")]
        count: Option<u64>,
    },
    /// Show the capabilities of spind: machine, memory sizes, maximum packet length, limits, guarantees.
    Capabilities {
        #[command(flatten)]
        json: JsonArg,
    },
    /// Remove a context.
    Rm {
        /// Context id, or name of one of your contexts.
        #[arg(value_name = "ID|NAME")]
        context: String,
    },
    /// Show a context's events: ended handlers, ended messages, completed copies.
    Events {
        /// Context id, or name of one of your contexts.
        #[arg(value_name = "ID|NAME")]
        context: String,
        /// Print new events until interrupted.
        #[arg(long, short)]
        follow: bool,
        /// Print one JSON object in each line.
        #[arg(long)]
        json: bool,
    },
    /// Write a context's host memory, which its handlers share with applications, to standard output.
    Dump {
        /// Context id, or name of one of your contexts.
        #[arg(value_name = "ID|NAME")]
        context: String,
        /// Offset of the first byte.
        #[arg(long, default_value = "0", value_parser = size)]
        offset: u64,
        /// Number of bytes [default: to the end].
        #[arg(long, value_parser = size)]
        length: Option<u64>,
    },
    /// On `spind --nic loopback`: receive the frames of a capture, and save the sent frames.
    Replay {
        /// Capture to replay.
        #[arg(value_name = "IN.pcap")]
        input: PathBuf,
        /// File for the sent frames.
        #[arg(value_name = "OUT.pcap")]
        output: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub struct InstallArgs {
    /// Handler image built by `spin-cc`.
    #[arg(value_name = "HANDLER.elf")]
    pub image: PathBuf,
    /// Match rule, such as 'udp dport 9999', 'icmp echo', 'ip src 10.0.0.0/24 and tcp dport 80', or raw words. May be
    /// given more than once; a packet must match any of them.
    #[arg(long, required = true)]
    pub rule: Vec<String>,
    /// Condition for the last packet of a message: 'always' (the default: each datagram is a message), 'never', or a
    /// rule.
    #[arg(long)]
    pub eom: Option<String>,
    /// Message key: 'flow' (the default), or byte ranges such as 'flow + payload[2:4]'.
    #[arg(long, conflicts_with = "compat")]
    pub key: Option<String>,
    /// Rule for the packets that are headers of their messages, such as 'payload[0:4] = 0', for networks that reorder packets. Other packets
    /// of a message run after its header [default: the first packet of a message that arrives].
    #[arg(long, value_name = "RULE")]
    pub header: Option<String>,
    /// Packets that arrive before their header, with --header: 'wait' for it, or 'drop'. They wait up to the message timeout, or 1 s. At most
    /// 64 of a message wait.
    #[arg(long, value_name = "wait|drop", default_value_t, requires = "header")]
    pub early: Early,
    /// Handlers of the image, by symbol or address, such as 'ph=count_ph' or 'hh=0x1d000000,ph=work' [default: those that
    /// the image declares: header_handler, payload_handler, completion_handler, or what its init_handlers names].
    #[arg(long, value_name = "hh=NAME,ph=NAME,th=NAME")]
    pub handlers: Option<HandlerNames>,
    /// Name of the context [default: the image's file name].
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// Host memory that handlers access by DMA, in bytes (suffixes K, M, G).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    pub host_mem: u64,
    /// Handler memory shared by the context's messages, in bytes (suffixes K, M).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size_u32)]
    pub handler_mem: u32,
    /// Scratchpad in each cluster's L1, in bytes (suffixes K, M).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size_u32)]
    pub scratchpad: u32,
    /// Bytes of each packet to copy to L1 [default: all].
    #[arg(long, value_name = "BYTES")]
    pub l1_bytes: Option<u32>,
    /// Time limit of a handler in microseconds, at most the daemon's limit (limits.watchdog_us) [default: that limit].
    #[arg(long, value_name = "US")]
    pub watchdog_us: Option<u64>,
    /// Instruction limit of a handler; deterministic. A send counts as 1000 instructions, a copy as its bytes / 8
    /// [default: no limit].
    #[arg(long, value_name = "N")]
    pub instruction_limit: Option<u64>,
    /// Timeout of an open message in microseconds. A message without a packet for that long is ended without its
    /// completion handler; the delay is at most 0.1 s for each 8192 of `[sizes] queues` [default: no timeout].
    #[arg(long, value_name = "US")]
    pub message_timeout_us: Option<u64>,
    /// Maximum delay in microseconds before a sleeping application is woken, to collect events while packets arrive
    /// [default: woken after each packet batch].
    #[arg(long, value_name = "US")]
    pub doorbell_us: Option<u64>,
    /// ABI of the handlers: 'wire' (spin.h), 'pspin' (packets without the Ethernet header, fields little-endian) or
    /// 'fpspin'.
    #[arg(long, value_name = "wire|pspin|fpspin", default_value_t)]
    pub abi: Abi,
    /// Message semantics: 'fpspin' identifies a message by four bits of its id, as that machine does, so ids of
    /// different senders collide; 'none' uses --key.
    #[arg(long, value_name = "none|fpspin", default_value_t)]
    pub compat: Compat,
    /// Granularity of memory checks: 'page', at no cost, or 'exact', to the byte.
    #[arg(long, value_name = "page|exact", default_value_t)]
    pub checks: Checks,
    /// Isolation of stack and packet windows: later tasks of the same 'context', or only of the same 'message', may see
    /// what a task left there.
    #[arg(long, value_name = "context|message", default_value_t)]
    pub isolation: Isolation,
    /// Placement of a message's tasks: 'home' cluster only, with its L1 and fast atomics there, or 'any' cluster, also
    /// in parallel.
    #[arg(long, value_name = "home|any", default_value_t)]
    pub placement: Placement,
    /// Where the handlers run. 'kernel': in the XDP hook; if that is not possible, the install is refused with the reason.
    /// 'auto': in the hook if possible, else in user space; 'list' shows the reason. 'user': in user space.
    #[arg(long, value_name = "auto|user|kernel", default_value_t)]
    pub tier: Tier,
    /// Weight of the context's share of its user's time and packet buffer, relative to the user's other contexts.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub weight: u32,
    /// Policy when the context's share of the packet buffer is full. 'drop' drops packets. 'wait' stalls reception for
    /// all contexts, up to this context's share of the time; then packets are dropped. 'mark' sets ECN, from half the
    /// share on. 'kill' ends the packet's message.
    #[arg(long, value_name = "drop|wait|mark|kill", default_value_t)]
    pub full: Full,
    /// HPUs of each cluster that the context's tasks may hold at a time; others run while one waits.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub hpus: u32,
    /// Id of the context to replace, or the name of one of yours. Its open messages complete with the old handlers; new messages use the new
    /// context.
    #[arg(long, value_name = "ID|NAME")]
    pub replace: Option<String>,
    /// How long the context stays, unless 'rm' removes it: until the 'daemon' ends, or beyond ('persistent': spind installs it again at
    /// each start).
    #[arg(long, value_name = "daemon|persistent", default_value_t = Lifetime::Daemon, value_parser = lifetime)]
    pub lifetime: Lifetime,
    /// Unit that runs the context, or the first of several [default: the one with fewest contexts].
    #[arg(long, value_name = "N")]
    pub unit: Option<u32>,
    /// Number of units that run the context: its packets run in the unit at whose queue they arrive. The handlers read which one from
    /// spin.h [default: 1].
    #[arg(long, value_name = "N|all")]
    pub units: Option<UnitCount>,
    /// Each unit has handler memory and image data of its own, with --units. Otherwise units share them, and handlers change them by
    /// atomics.
    #[arg(long, requires = "units")]
    pub handler_mem_per_unit: bool,
    /// The handlers return verdicts (SPIN_VERDICTS): they may pass packets to the kernel, or discard the rest of a
    /// message.
    #[arg(long)]
    pub verdicts: bool,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// A lifetime beyond that of this command.
fn lifetime(text: &str) -> Result<Lifetime, String> {
    match text.parse() {
        Ok(lifetime @ (Lifetime::Daemon | Lifetime::Persistent)) => Ok(lifetime),
        Ok(Lifetime::Connection) => {
            Err("the context would go when this command ends; try daemon or persistent".to_owned())
        }
        Err(_) => Err("expected daemon or persistent".to_owned()),
    }
}

/// An interval in seconds. spind reads its counters at most 100 times a second.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give 0.01 to 86400 seconds".to_owned())
}

fn size_u32(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| format!("{text:?} is too large: at most 4G - 1"))
}

#[cfg(test)]
mod tests {
    use super::{Args, Command, JsonForm, interval, size, size_u32};
    use clap::{CommandFactory, Parser};
    use std::time::Duration;

    #[test]
    fn command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_key_is_one_s_own_or_that_of_another_machine() {
        let install = |more: &str| {
            let words = format!("spinctl install handler.elf --rule any {more}");
            Args::try_parse_from(words.split(' '))
        };
        assert!(install("--compat fpspin").is_ok() && install("--key flow").is_ok());
        assert!(install("--compat fpspin --key flow").is_err());
    }

    #[test]
    fn json_has_a_form_and_watch_an_interval() {
        let stats = |more: &str| {
            let args = Args::try_parse_from(format!("spinctl stats{more}").split(' '));
            args.map(|args| match args.command {
                Command::Stats { json, watch, count, .. } => (json.form, watch, count),
                other => panic!("{other:?}"),
            })
        };
        let second = Some(Duration::from_secs(1));
        for (more, expected) in [
            ("", (None, None, None)),
            (" --json", (Some(JsonForm::Objects), None, None)),
            (" --json=1", (Some(JsonForm::Pairs), None, None)),
            (" --watch --json", (Some(JsonForm::Objects), second, None)),
            (" --watch 0.5 --count 3", (None, Some(Duration::from_millis(500)), Some(3))),
        ] {
            assert_eq!(stats(more).unwrap(), expected, "{more}");
        }
        for refused in [" --json=3", " --json 1", " --count 3", " --watch --explain", " --json --explain", " --watch 0"]
        {
            assert!(stats(refused).is_err(), "{refused}");
        }
        assert!(interval("nan").is_err() && interval("1e9").is_err() && interval("-1").is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!((size("64K"), size_u32("64K")), (Ok(65536), Ok(65536)));
        assert!(size("1.5M").is_err());
        assert!(size_u32("4G").is_err());
    }
}
