//! Maps the bytes of a frame to (context, message, end of message).
//!
//! * [`headers`]: header positions in a frame.
//! * [`rule`]: rules as users write them; [`text`] reads and prints them.
//! * [`compile`]: from rules to the tests of [`spin_abi::rules`].
//! * [`evaluate`]: evaluates those tests on a frame, as the XDP program does.
//! * `exact`: rules that name a destination, which are looked up by hash.
//! * [`key`]: message keys.
//! * `plain`: the same tests, specialised for the most common kind of frames.
//! * [`table`]: all contexts in order of priority, which the engine consults for each frame.
//! * [`fpspin`]: FPsPIN's rulesets as rules.
//! * `testing` (feature of that name): random frames and rules for property tests.
//!
//! Nothing in a frame makes this crate panic, and matching a frame allocates nothing.
//!
//! ```
//! use spin_matcher::{Headers, Table, TableEntry};
//!
//! let entry = TableEntry { context: 1, rules: "udp dport 9999 or icmp echo".parse()?, ..TableEntry::default() };
//! let table = Table::new(&[entry])?;
//! let frame = [0; 60];
//! assert_eq!(table.match_frame(&frame, &Headers::parse(&frame)), None);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Rules as text
//! ```text
//! rules := rule { "or" rule } | "never"          the first rule that holds decides
//! rule  := term { "and" term }                   "and" binds closer than "or"; there are no parentheses
//! term  := "any"
//!        | "udp" | "tcp"                         a transport header is there, over IPv4 or IPv6
//!        | ("udp" | "tcp") ("sport" | "dport") PORT [ "-" PORT ]
//!        | "icmp" | "icmp6"                      ICMP over IPv4, ICMPv6 over IPv6
//!        | ("icmp" | "icmp6") ("echo" | "echo-reply" | "type" N [ "code" N ])
//!        | "ip" | "ip6"                          a well-formed header
//!        | ("ip" | "ip6") ("src" | "dst") ADDRESS [ "/" BITS ]
//!        | [ "ip" | "ip6" ] "proto" N            1 to 255
//!        | "ether" ("src" | "dst") MAC
//!        | "ether" "type" N                      after VLAN tags
//!        | "arp"
//!        | "vlan" [ ID ]                         the outer tag, 802.1Q or 802.1ad
//!        | word
//! word  := field [ "&" N ] ("=" | "==") N        compared as one big-endian number
//!        | field [ "&" N ] "in" N ".." N         inclusive
//! field := base "[" OFFSET ":" (1 | 2 | 4) [ "le" ] [ "zero" ] "]" | "kind"
//! base  := "frame" | "ip" | "l4" | "payload"
//! ```
//! Upper and lower case are the same. Some of tcpdump's spellings are read too: `udp dst port 53`, `src host 10.0.0.1`, `dst net …`.
//!
//! Numbers are decimal, or hexadecimal with `0x`. Fragments and packets cut short have no transport header, so no term on protocol,
//! ports, `l4` or `payload` holds for them. `kind` is `EtherType << 16 | IP version << 8 | protocol`. A field marked `le` is read
//! little-endian. The bytes of a field marked `zero` read as zero beyond the packet: FPsPIN's words.
//!
//! # End of message as text
//! `always` (each frame is a message of its own; the default), `never`, or rules.
//!
//! # Message keys as text
//! ```text
//! key   := part { ("+" | ",") part } | "fpspin"
//! part  := "flow"                                once and first; [`key`] defines the flow
//!        | base "[" OFFSET ":" LENGTH "]"
//! ```
//! `fpspin` is FPsPIN's queue number, computed from bytes 44 to 47 of the frame: see [`fpspin::message_queue`]. Beside `flow` there is
//! room for one range of four bytes. Without it there is room for 47 bytes, and each range takes one more byte than its length.
#![forbid(unsafe_code)]

pub mod compile;
pub mod conjunction;
mod contradiction;
pub mod evaluate;
mod exact;
pub mod fpspin;
pub mod headers;
pub mod key;
mod lower;
mod message_queue;
mod plain;
pub mod rule;
pub mod table;
mod targets;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;

pub use headers::Headers;
pub use key::{HashSeed, KeySpec, MessageKey};
pub use rule::{Eom, Rules};
pub use table::{Match, Table, TableEntry, TableError};
pub use text::{ListError, ParseError};
