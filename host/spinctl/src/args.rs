//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use libspin::{Abi, Checks, Compat, Full, Isolation, Placement, parse_size};

/// Install, list, watch and remove sPIN execution contexts of a running spind.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    /// Where spind listens.
    #[arg(long, global = true, default_value = libspin::DEFAULT_SOCKET, value_name = "PATH")]
    pub socket: PathBuf,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install a handler image as an execution context that stays until removed.
    Install(InstallArgs),
    /// List contexts in order of priority.
    List {
        /// Machine-readable.
        #[arg(long)]
        json: bool,
    },
    /// Show counters of engine, NIC and contexts, and the latest faults.
    Stats {
        /// Machine-readable.
        #[arg(long)]
        json: bool,
        /// Say what each counter counts.
        #[arg(long, conflicts_with = "json")]
        explain: bool,
    },
    /// Show what spind offers: machine, sizes of its memories, longest packet, limits, guarantees.
    Capabilities {
        /// Machine-readable.
        #[arg(long)]
        json: bool,
    },
    /// Remove a context.
    Rm {
        /// Its id or name.
        #[arg(value_name = "ID|NAME")]
        context: String,
    },
    /// Show what one context's application is told: handlers that were ended, messages that were, copies that are done.
    Events {
        /// Its id or name.
        #[arg(value_name = "ID|NAME")]
        context: String,
        /// Go on showing what happens until interrupted.
        #[arg(long, short)]
        follow: bool,
    },
    /// Write the host memory that a context's handlers share with applications to standard output.
    Dump {
        /// Its id or name.
        #[arg(value_name = "ID|NAME")]
        context: String,
        /// First byte.
        #[arg(long, default_value = "0", value_parser = size)]
        offset: u64,
        /// Bytes; to the end unless given.
        #[arg(long, value_parser = size)]
        length: Option<u64>,
    },
    /// On `spind --nic loopback`: let a capture arrive as if from the wire, and keep what was sent.
    Replay {
        /// The capture to replay.
        #[arg(value_name = "IN.pcap")]
        input: PathBuf,
        /// Where to write the frames sent.
        #[arg(value_name = "OUT.pcap")]
        output: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub struct InstallArgs {
    /// Handler image, as `spin-cc` makes it.
    #[arg(value_name = "HANDLER.elf")]
    pub image: PathBuf,
    /// Which packets: 'udp dport 9999', 'icmp echo', 'ip src 10.0.0.0/24 and tcp dport 80', or raw words. Given more
    /// than once, any of them matches.
    #[arg(long, required = true)]
    pub rule: Vec<String>,
    /// When a packet is its message's last: 'always' (the default: each datagram is a message), 'never', or a rule.
    #[arg(long)]
    pub eom: Option<String>,
    /// What names a message: 'flow' (the default), or byte ranges such as 'flow + payload[2:4]'.
    #[arg(long, conflicts_with = "compat")]
    pub key: Option<String>,
    /// Name to list it by; the image's file name unless given.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// Host memory that handlers reach by DMA, in bytes (suffixes K, M, G).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    pub host_mem: u64,
    /// Handler memory shared by the context's messages, in bytes (suffixes K, M).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size_u32)]
    pub handler_mem: u32,
    /// Scratchpad in each cluster's L1, in bytes (suffixes K, M).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size_u32)]
    pub scratchpad: u32,
    /// Bytes of each packet to copy to L1; all of it unless given.
    #[arg(long, value_name = "BYTES")]
    pub l1_bytes: Option<u32>,
    /// Microseconds a handler may run before it is ended, at most the daemon's limit (limits.watchdog_us), which it is unless given.
    #[arg(long, value_name = "US")]
    pub watchdog_us: Option<u64>,
    /// Instructions a handler may run before it is ended, the same in every run; a send counts for 1000, copies for their
    /// bytes / 8. Not counted unless given.
    #[arg(long, value_name = "N")]
    pub instruction_limit: Option<u64>,
    /// Microseconds that an open message may wait for its next packet before it is ended, without its completion handler (which is
    /// noticed within 0.1 s, for each 8192 of `[sizes] queues`); for ever unless given.
    #[arg(long, value_name = "US")]
    pub message_timeout_us: Option<u64>,
    /// Microseconds that events may wait for others while packets come, before the application that sleeps until there are some is
    /// woken for all of them; it is woken after each batch of packets unless given.
    #[arg(long, value_name = "US")]
    pub doorbell_us: Option<u64>,
    /// Whose handlers they are: 'wire' (spin.h), 'pspin' (packets without the Ethernet header, fields little-endian) or 'fpspin'.
    #[arg(long, value_name = "wire|pspin|fpspin", default_value_t)]
    pub abi: Abi,
    /// Whose rules of messages hold: 'fpspin' names them as that machine does, by four bits of their id, in which ids of different
    /// senders collide; 'none' leaves that to --key.
    #[arg(long, value_name = "none|fpspin", default_value_t)]
    pub compat: Compat,
    /// How exactly handlers are kept to their memory: 'page', at no cost, or 'exact', to the byte.
    #[arg(long, value_name = "page|exact", default_value_t)]
    pub checks: Checks,
    /// Who may see what a task leaves in its stack and packet windows: later tasks of the 'context', or those of the same
    /// 'message' only.
    #[arg(long, value_name = "context|message", default_value_t)]
    pub isolation: Isolation,
    /// Where a message's tasks may run: its 'home' cluster only, with its L1 and fast atomics there, or 'any', at the same time
    /// too.
    #[arg(long, value_name = "home|any", default_value_t)]
    pub placement: Placement,
    /// Share of time and packet buffer, relative to other contexts'.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub weight: u32,
    /// What becomes of packets when the context's share of the packet buffer is full: 'drop' them, 'wait' (other
    /// contexts wait too, but for no more than its share of the time; then they are dropped), 'mark' (ECN, from half the share on), or
    /// 'kill' their message.
    #[arg(long, value_name = "drop|wait|mark|kill", default_value_t)]
    pub full: Full,
    /// HPUs of each cluster that the context's tasks may hold at a time: others run while one waits.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub hpus: u32,
    /// Id or name of the context to take the place of: its open messages end as they began, others are the new one's.
    #[arg(long, value_name = "ID|NAME")]
    pub replace: Option<String>,
    /// The handlers return verdicts (SPIN_VERDICTS): they may hand packets on to the kernel, or discard the rest of a message.
    #[arg(long)]
    pub verdicts: bool,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn size_u32(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| format!("{text:?} is too large: at most 4G - 1"))
}

#[cfg(test)]
mod tests {
    use super::{Args, size, size_u32};
    use clap::{CommandFactory, Parser};

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
    fn sizes() {
        assert_eq!((size("64K"), size_u32("64K")), (Ok(65536), Ok(65536)));
        assert!(size("1.5M").is_err());
        assert!(size_u32("4G").is_err());
    }
}
