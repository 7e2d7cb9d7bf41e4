//! Printing rules, so that they read back the same.

use core::fmt::{self, Display, Formatter};

use super::rules::ICMP_NAMES;
use super::word::BASES;
use crate::headers::{ICMP, ICMP6, TCP, UDP};
use crate::rule::{Eom, Field, IpVersion, Prefix, Range, Rule, Rules, Side, Term, Transport};

impl Display for Rules {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.rules.is_empty() { f.write_str("never") } else { joined(f, &self.rules, " or ") }
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() { f.write_str("any") } else { joined(f, &self.terms, " and ") }
    }
}

impl Display for Eom {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Never => f.write_str("never"),
            Self::When(rules) => rules.fmt(f),
        }
    }
}

fn joined<T: Display>(f: &mut Formatter<'_>, items: &[T], separator: &str) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(separator)?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ip(version) => f.write_str(ip(version)),
            Self::Network { side, prefix } => {
                let version = if prefix.address().is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
                write!(f, "{} {} {prefix}", ip(version), end(side))
            }
            Self::Protocol { version, protocol } => self::protocol(f, version, protocol.get()),
            Self::Port { transport, side, first, last } => ports(f, transport, side, first, last),
            Self::Icmp { version, kind, code } => icmp(f, version, kind, code),
            Self::EtherType(ethertype) => write!(f, "ether type {ethertype:#06x}"),
            Self::EtherAddress { side, address: [a, b, c, d, e, g] } => {
                write!(f, "ether {} {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}", end(side))
            }
            Self::Vlan(None) => f.write_str("vlan"),
            Self::Vlan(Some(id)) => write!(f, "vlan {id}"),
            Self::Word(range) => range.fmt(f),
        }
    }
}

const fn ip(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "ip",
        IpVersion::V6 => "ip6",
    }
}

const fn end(side: Side) -> &'static str {
    match side {
        Side::Source => "src",
        Side::Destination => "dst",
    }
}

fn protocol(f: &mut Formatter<'_>, version: Option<IpVersion>, protocol: u8) -> fmt::Result {
    match (version, protocol) {
        (None, UDP) => f.write_str("udp"),
        (None, TCP) => f.write_str("tcp"),
        (None, number) => write!(f, "proto {number}"),
        (Some(IpVersion::V4), ICMP) => f.write_str("icmp"),
        (Some(IpVersion::V6), ICMP6) => f.write_str("icmp6"),
        (Some(version), number) => write!(f, "{} proto {number}", ip(version)),
    }
}

fn ports(f: &mut Formatter<'_>, transport: Transport, side: Side, first: u16, last: u16) -> fmt::Result {
    let transport = match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    let side = match side {
        Side::Source => "sport",
        Side::Destination => "dport",
    };
    write!(f, "{transport} {side} {first}")?;
    if first == last { Ok(()) } else { write!(f, "-{last}") }
}

fn icmp(f: &mut Formatter<'_>, version: IpVersion, kind: u8, code: Option<u8>) -> fmt::Result {
    f.write_str(match version {
        IpVersion::V4 => "icmp",
        IpVersion::V6 => "icmp6",
    })?;
    let named = ICMP_NAMES.iter().find(|(of, number, _)| (*of, *number) == (version, kind));
    match (named, code) {
        (Some((_, _, name)), None) => write!(f, " {name}"),
        (None, None) => write!(f, " type {kind}"),
        (_, Some(code)) => write!(f, " type {kind} code {code}"),
    }
}

impl Display for Prefix {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let full = if self.address().is_ipv4() { 32 } else { 128 };
        self.address().fmt(f)?;
        if self.length() == full { Ok(()) } else { write!(f, "/{}", self.length()) }
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let digits = 2 + 2 * self.field().width as usize;
        self.field().fmt(f)?;
        if self.mask() != self.field().width.mask() {
            write!(f, " & {:#0digits$x}", self.mask())?;
        }
        if self.min() == self.max() && self.min() & !self.mask() == 0 {
            write!(f, " = {:#0digits$x}", self.min())
        } else {
            write!(f, " in {}..{}", self.min(), self.max())
        }
    }
}

impl Display for Field {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some((_, base)) = BASES.iter().find(|(base, _)| *base == self.base) else {
            return f.write_str("kind");
        };
        let little_endian = if self.little_endian { " le" } else { "" };
        let zero_beyond = if self.zero_beyond { " zero" } else { "" };
        write!(f, "{base}[{}:{}{little_endian}{zero_beyond}]", self.offset, self.width as u8)
    }
}
