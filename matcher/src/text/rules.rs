//! Reading rules.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU8;
use core::str::FromStr;

use super::cursor::{Cursor, ParseError};
use super::word;
use crate::rule::{Eom, IpVersion, MAX_TERMS, Prefix, Rule, Rules, Side, Term, Transport};

/// Description of the possible beginnings of a rule.
const TERMS: &str = "a condition (`udp dport 9999`, `ip src 10.0.0.0/24`, `icmp echo`, `ether type 0x88b5`, \
                     `vlan 100`, `l4[2:2] = 9999`, `any`)";

/// ICMP and ICMPv6 types that have a name.
pub(super) const ICMP_NAMES: [(IpVersion, u8, &str); 4] = [
    (IpVersion::V4, 8, "echo"),
    (IpVersion::V4, 0, "echo-reply"),
    (IpVersion::V6, 128, "echo"),
    (IpVersion::V6, 129, "echo-reply"),
];

impl FromStr for Rules {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.to_ascii_lowercase();
        let mut cursor = Cursor::new(&text);
        let mut rules = Self::default();
        if !cursor.eat_name("never") {
            rules = alternatives(&mut cursor)?;
        }
        if cursor.at_end() { Ok(rules) } else { Err(unexpected(&cursor)) }
    }
}

impl FromStr for Eom {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("always") {
            Ok(Self::Always)
        } else if text.eq_ignore_ascii_case("never") {
            Ok(Self::Never)
        } else {
            text.parse().map(Self::When)
        }
    }
}

fn alternatives(cursor: &mut Cursor<'_>) -> Result<Rules, ParseError> {
    let (mut rules, mut left) = (Rules::default(), MAX_TERMS);
    loop {
        rules.rules.push(conjunction(cursor, &mut left)?);
        if !cursor.eat_name("or") {
            return Ok(rules);
        }
    }
}

/// Reads one rule. `left` is the number of conditions that may follow.
fn conjunction(cursor: &mut Cursor<'_>, left: &mut usize) -> Result<Rule, ParseError> {
    let mut rule = Rule::default();
    loop {
        *left = left.checked_sub(1).ok_or_else(|| cursor.error(format!("more than {MAX_TERMS} conditions")))?;
        if !cursor.eat_name("any") {
            rule.terms.push(term(cursor)?);
        }
        if !cursor.eat_name("and") {
            return Ok(rule);
        }
    }
}

/// Error for text that continues after a condition, or cannot begin one.
fn unexpected(cursor: &Cursor<'_>) -> ParseError {
    if cursor.clone().eat("(") || cursor.clone().eat(")") {
        return cursor.error("there are no parentheses: write the alternatives out, `a and b or a and c`");
    }
    cursor.expected("`and`, `or` or the end")
}

fn term(cursor: &mut Cursor<'_>) -> Result<Term, ParseError> {
    if let Some(range) = word::range(cursor)? {
        return Ok(Term::Word(range));
    }
    let start = *cursor;
    for (name, read) in READERS {
        if cursor.eat_name(name) {
            return read(cursor);
        }
    }
    match start.peek_name() {
        "arp" => {
            cursor.eat_name("arp");
            Ok(Term::EtherType(ARP))
        }
        "src" => either_version(cursor, Side::Source),
        "dst" => either_version(cursor, Side::Destination),
        "port" | "host" | "net" | "portrange" | "not" | "!" => Err(tcpdump(start)),
        _ if start.clone().eat("!") => Err(start.error(NOT)),
        _ if start.clone().eat("(") => Err(unexpected(&start)),
        _ => Err(start.expected(TERMS)),
    }
}

const NOT: &str = "there is no `not`: the context installed first wins, so let one take the packets to leave out";
/// EtherType of ARP.
const ARP: u16 = 0x0806;

/// The error for a condition of tcpdump that stands for several alternatives. It says how to write them.
fn tcpdump(mut cursor: Cursor<'_>) -> ParseError {
    let start = cursor;
    let name = cursor.peek_name();
    cursor.eat_name(name);
    let value = match cursor.address() {
        "" if name == "port" => "53",
        "" => "10.0.0.1",
        value => value,
    };
    start.error(match name {
        "port" | "portrange" => format!(
            "`{name}` is of either side and transport: write `udp sport {value} or udp dport {value}`, or `tcp …`"
        ),
        "host" | "net" => {
            let ip = if value.contains(':') { "ip6" } else { "ip" };
            format!("`{name}` is of either side: write `{ip} src {value} or {ip} dst {value}`")
        }
        _ => NOT.to_owned(),
    })
}

/// Reads what follows tcpdump's `src` and `dst` without a version: an address or a network.
fn either_version(cursor: &mut Cursor<'_>, side: Side) -> Result<Term, ParseError> {
    let (start, name) = (*cursor, cursor.peek_name());
    cursor.eat_name(name);
    if cursor.eat_name("port") || cursor.eat_name("portrange") {
        let (port, side) = (cursor.address(), if side == Side::Source { "sport" } else { "dport" });
        let port = if port.is_empty() { "53" } else { port };
        return Err(start.error(format!("name the transport: write `udp {side} {port}` or `tcp {side} {port}`")));
    }
    let _ = cursor.eat_name("host") || cursor.eat_name("net");
    let version = if cursor.clone().address().contains(':') { IpVersion::V6 } else { IpVersion::V4 };
    prefix(cursor, version).map(|prefix| Term::Network { side, prefix })
}

/// Reads the text after a condition's first name.
type Reader = fn(&mut Cursor<'_>) -> Result<Term, ParseError>;

const READERS: [(&str, Reader); 9] = [
    ("udp", |cursor| ports(cursor, Transport::Udp)),
    ("tcp", |cursor| ports(cursor, Transport::Tcp)),
    ("icmp", |cursor| icmp(cursor, IpVersion::V4)),
    ("icmp6", |cursor| icmp(cursor, IpVersion::V6)),
    ("ip", |cursor| ip(cursor, IpVersion::V4)),
    ("ip6", |cursor| ip(cursor, IpVersion::V6)),
    ("proto", |cursor| protocol(cursor, None)),
    ("ether", ether),
    ("vlan", vlan),
];

fn ports(cursor: &mut Cursor<'_>, transport: Transport) -> Result<Term, ParseError> {
    if let Some(side) = tcpdump_side(cursor) {
        return port_range(cursor, transport, side);
    }
    let side = match cursor.peek_name() {
        "sport" => Side::Source,
        "dport" => Side::Destination,
        "" | "and" | "or" => return Ok(Term::Protocol { version: None, protocol: transport.protocol() }),
        "port" | "portrange" => {
            let (start, name) = (*cursor, if transport == Transport::Tcp { "tcp" } else { "udp" });
            cursor.eat_name(cursor.peek_name());
            let port = match cursor.address() {
                "" => "53",
                port => port,
            };
            return Err(
                start.error(format!("a port is of one side: write `{name} sport {port} or {name} dport {port}`"))
            );
        }
        _ => return Err(cursor.expected("`sport`, `dport`, `and`, `or` or the end")),
    };
    cursor.eat_name(cursor.peek_name());
    port_range(cursor, transport, side)
}

/// Consumes tcpdump's `src port` or `dst port`.
fn tcpdump_side(cursor: &mut Cursor<'_>) -> Option<Side> {
    let mut ahead = *cursor;
    let side =
        [("src", Side::Source), ("dst", Side::Destination)].into_iter().find(|(name, _)| ahead.eat_name(name))?.1;
    if !ahead.eat_name("port") && !ahead.eat_name("portrange") {
        return None;
    }
    *cursor = ahead;
    Some(side)
}

/// Reads a port or a range of ports.
fn port_range(cursor: &mut Cursor<'_>, transport: Transport, side: Side) -> Result<Term, ParseError> {
    let start = *cursor;
    let first = cursor.half("a port")?;
    let last = if cursor.eat("-") { cursor.half("a port")? } else { first };
    if first > last {
        return Err(start.error(format!("the range is empty: port {first} is above {last}")));
    }
    Ok(Term::Port { transport, side, first, last })
}

fn icmp(cursor: &mut Cursor<'_>, version: IpVersion) -> Result<Term, ParseError> {
    for (of, kind, name) in ICMP_NAMES {
        if of == version && cursor.eat_name(name) {
            return Ok(Term::Icmp { version, kind, code: None });
        }
    }
    if cursor.eat_name("type") {
        let kind = cursor.byte("an ICMP type")?;
        let code = if cursor.eat_name("code") { Some(cursor.byte("an ICMP code")?) } else { None };
        return Ok(Term::Icmp { version, kind, code });
    }
    match cursor.peek_name() {
        "" | "and" | "or" => Ok(Term::Protocol { version: Some(version), protocol: version.icmp() }),
        _ => Err(cursor.expected("`echo`, `echo-reply`, `type`, `and`, `or` or the end")),
    }
}

fn ip(cursor: &mut Cursor<'_>, version: IpVersion) -> Result<Term, ParseError> {
    let side = match cursor.peek_name() {
        "src" => Side::Source,
        "dst" => Side::Destination,
        "proto" => {
            cursor.eat_name("proto");
            return protocol(cursor, Some(version));
        }
        "" | "and" | "or" => return Ok(Term::Ip(version)),
        _ => return Err(cursor.expected("`src`, `dst`, `proto`, `and`, `or` or the end")),
    };
    cursor.eat_name(cursor.peek_name());
    let _ = cursor.eat_name("host") || cursor.eat_name("net");
    prefix(cursor, version).map(|prefix| Term::Network { side, prefix })
}

fn prefix(cursor: &mut Cursor<'_>, version: IpVersion) -> Result<Prefix, ParseError> {
    let start = *cursor;
    let word = cursor.address();
    let (address, length) = word.split_once('/').map_or((word, None), |(address, length)| (address, Some(length)));
    let (parsed, full, example) = match version {
        IpVersion::V4 => (address.parse::<Ipv4Addr>().ok().map(IpAddr::V4), 32, "an IPv4 network like 10.0.0.0/24"),
        IpVersion::V6 => (address.parse::<Ipv6Addr>().ok().map(IpAddr::V6), 128, "an IPv6 network like 2001:db8::/32"),
    };
    let length = length.map_or(Some(full), |digits| digits.parse().ok());
    match parsed.zip(length) {
        Some((address, length)) => Prefix::new(address, length).map_err(|error| start.error(error.to_string())),
        None => Err(start.expected(example)),
    }
}

fn protocol(cursor: &mut Cursor<'_>, version: Option<IpVersion>) -> Result<Term, ParseError> {
    let start = *cursor;
    let number = cursor.byte("a protocol number")?;
    let protocol = NonZeroU8::new(number)
        .ok_or_else(|| start.error("protocol 0 stands for \"no transport header\": write `ip[9:1] = 0`"))?;
    Ok(Term::Protocol { version, protocol })
}

fn ether(cursor: &mut Cursor<'_>) -> Result<Term, ParseError> {
    if cursor.eat_name("type") {
        return cursor.half("an EtherType").map(Term::EtherType);
    }
    let side = match cursor.peek_name() {
        "src" => Side::Source,
        "dst" => Side::Destination,
        _ => return Err(cursor.expected("`type`, `src` or `dst`")),
    };
    cursor.eat_name(cursor.peek_name());
    let start = *cursor;
    mac(cursor.address())
        .map(|address| Term::EtherAddress { side, address })
        .ok_or_else(|| start.expected("a MAC address like 02:00:00:00:00:01"))
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

fn vlan(cursor: &mut Cursor<'_>) -> Result<Term, ParseError> {
    match cursor.peek_name() {
        "" | "and" | "or" => Ok(Term::Vlan(None)),
        _ => cursor.number("a VLAN id", 0xfff).map(|id| Term::Vlan(Some(id as u16))),
    }
}
