//! Rules that no frame can match: two of their terms exclude each other.

use crate::rule::{IpVersion, Prefix, Rule, Term, Transport};

impl Rule {
    /// Two terms that exclude each other. `None`: none was found, so the rule may hold. Words are not examined.
    #[must_use]
    pub fn contradiction(&self) -> Option<(Term, Term)> {
        let pairs =
            self.terms.iter().enumerate().flat_map(|(at, one)| self.terms[..at].iter().map(move |two| (*two, *one)));
        pairs.into_iter().find(|(one, two)| exclude(one, two))
    }
}

/// Whether no frame matches both terms.
fn exclude(one: &Term, two: &Term) -> bool {
    let differ = |one: Option<u32>, two: Option<u32>| one.zip(two).is_some_and(|(one, two)| one != two);
    differ(version(one), version(two))
        || differ(protocol(one), protocol(two))
        || differ(ethertype(one), ethertype(two))
        || same_field(one, two)
}

/// IP version that a term requires.
fn version(term: &Term) -> Option<u32> {
    let version = match *term {
        Term::Ip(version) | Term::Icmp { version, .. } => version,
        Term::Network { prefix, .. } if prefix.address().is_ipv4() => IpVersion::V4,
        Term::Network { .. } => IpVersion::V6,
        Term::Protocol { version, .. } => version?,
        Term::Port { .. } | Term::EtherType(_) | Term::EtherAddress { .. } | Term::Vlan(_) | Term::Word(_) => {
            return None;
        }
    };
    Some(version as u32)
}

/// Transport protocol that a term requires.
fn protocol(term: &Term) -> Option<u32> {
    let protocol = match *term {
        Term::Protocol { protocol, .. } => protocol,
        Term::Port { transport: Transport::Tcp, .. } => Transport::Tcp.protocol(),
        Term::Port { transport: Transport::Udp, .. } => Transport::Udp.protocol(),
        Term::Icmp { version, .. } => version.icmp(),
        Term::Ip(_)
        | Term::Network { .. }
        | Term::EtherType(_)
        | Term::EtherAddress { .. }
        | Term::Vlan(_)
        | Term::Word(_) => {
            return None;
        }
    };
    Some(protocol.get().into())
}

/// EtherType that a term requires; that of IPv4, for a term that holds for both versions, is not said.
fn ethertype(term: &Term) -> Option<u32> {
    match (term, version(term)) {
        (Term::EtherType(ethertype), _) => Some((*ethertype).into()),
        (_, Some(4)) => Some(0x0800),
        (_, Some(_)) => Some(0x86dd),
        (_, None) => None,
    }
}

/// Whether both terms are about one field, and no value satisfies both.
fn same_field(one: &Term, two: &Term) -> bool {
    match (*one, *two) {
        (Term::Port { side, first, last, .. }, Term::Port { side: other, first: from, last: to, .. }) => {
            side == other && (last < from || to < first)
        }
        (Term::Network { side, prefix }, Term::Network { side: other, prefix: second }) => {
            side == other && are_disjoint(&prefix, &second)
        }
        (Term::EtherAddress { side, address }, Term::EtherAddress { side: other, address: second }) => {
            side == other && address != second
        }
        (Term::Vlan(Some(id)), Term::Vlan(Some(other))) => id != other,
        (Term::Icmp { kind, code, .. }, Term::Icmp { kind: other, code: second, .. }) => {
            kind != other || code.zip(second).is_some_and(|(code, second)| code != second)
        }
        _ => false,
    }
}

/// Whether two networks of one version have no common address.
fn are_disjoint(one: &Prefix, two: &Prefix) -> bool {
    let length = one.length().min(two.length());
    let shorter = |prefix: &Prefix| prefix.shortened(length);
    one.address().is_ipv4() == two.address().is_ipv4() && shorter(one) != shorter(two)
}
