//! Exact rules: those that name a protocol, destination ports and perhaps one destination address. [`spin_abi::rules`] defines them.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use spin_abi::rules::{Base, END_OF_RULE, ExactKey, Test};

use crate::headers::{Headers, TCP, UDP};

/// Maximum number of ports in a rule that becomes keys. A rule with more stays in the list.
const MAX_PORTS: u32 = 64;

/// The parts of a conjunction of tests.
#[derive(Default)]
struct Parts<'t> {
    kind: Vec<&'t Test>,
    ip: Vec<&'t Test>,
    l4: Vec<&'t Test>,
}

impl<'t> Parts<'t> {
    /// `None` if there are parts of which no exact rule consists.
    fn of(rule: &'t [Test]) -> Option<Self> {
        let mut parts = Self::default();
        for test in rule {
            match test.base {
                _ if test.flags & !END_OF_RULE != 0 => return None,
                Base::Kind => parts.kind.push(test),
                Base::Ip => parts.ip.push(test),
                Base::L4 => parts.l4.push(test),
                Base::Frame | Base::Payload => return None,
            }
        }
        Some(parts)
    }

    /// IP versions and the protocol.
    fn kind(&self) -> Option<(&'static [u8], u8)> {
        let &[&Test { mask, min, max, .. }] = &self.kind[..] else { return None };
        let [_, _, version, protocol] = min.to_be_bytes();
        let is_one = min == max && [TCP, UDP].contains(&protocol);
        match (mask, min, version) {
            _ if !is_one => None,
            (0xff, 0..=0xff, _) => Some((&[4, 6], protocol)),
            (0xffff, 0..=0xffff, 4) => Some((&[4], protocol)),
            (0xffff, 0..=0xffff, 6) => Some((&[6], protocol)),
            _ => None,
        }
    }

    /// Destination ports: the lower half of the first word of L4.
    fn ports(&self) -> Option<std::ops::RangeInclusive<u16>> {
        let &[&Test { offset: 0, mask: 0xffff, min, max, .. }] = &self.l4[..] else { return None };
        let (first, last) = (u16::try_from(min).ok()?, u16::try_from(max).ok()?);
        (first <= last && max - min < MAX_PORTS).then_some(first..=last)
    }

    /// The destination address, of a packet of one IP version.
    fn address(&self, version: u8) -> Option<[u8; 16]> {
        let mut address = ExactKey::ANY_ADDRESS;
        // Position of the address in the header.
        let (start, words) = if version == 4 { (16, 1) } else { (24, 4) };
        for test in &self.ip {
            let index = usize::try_from(test.offset.checked_sub(start)?).ok()?;
            let is_word = index.is_multiple_of(4) && index < 4 * words;
            if !is_word || test.mask != u32::MAX || test.min != test.max {
                return None;
            }
            address[index..index + 4].copy_from_slice(&test.min.to_be_bytes());
        }
        let offsets: BTreeSet<_> = self.ip.iter().map(|test| test.offset).collect();
        let is_whole = offsets.len() == words && self.ip.len() == words;
        (is_whole && address != ExactKey::ANY_ADDRESS || self.ip.is_empty()).then_some(address)
    }
}

/// The keys of a rule, if it is exact. `rule` is one conjunction.
fn keys_of(rule: &[Test]) -> Option<Vec<ExactKey>> {
    let parts = Parts::of(rule)?;
    let ((versions, protocol), ports) = (parts.kind()?, parts.ports()?);
    if !parts.ip.is_empty() && versions.len() > 1 {
        return None;
    }
    let mut keys = Vec::new();
    for &version in versions {
        let address = parts.address(version)?;
        keys.extend(ports.clone().map(|port| ExactKey { address, port: port.to_be_bytes(), version, protocol }));
    }
    Some(keys)
}

/// Splits a list of tests: the rules that are not exact, and the keys of those that are.
pub(crate) fn split(tests: &[Test]) -> (Vec<Test>, Vec<ExactKey>) {
    let (mut listed, mut exact) = (Vec::new(), Vec::new());
    for rule in tests.split_inclusive(|test| test.flags & END_OF_RULE != 0) {
        match keys_of(rule) {
            Some(keys) => exact.extend(keys),
            None => listed.extend_from_slice(rule),
        }
    }
    (listed, exact)
}

/// Contexts by the keys of their exact rules: the first that has the key, by its index in the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExactIndex {
    /// Contexts of IPv4, by [`short`] keys.
    v4: HashMap<u64, usize, RandomState>,
    v6: HashMap<ExactKey, usize, RandomState>,
}

/// A key of IPv4 as a number, which takes less time to hash.
const fn short(ExactKey { address: [a, b, c, d, ..], port: [high, low], protocol, .. }: ExactKey) -> u64 {
    u64::from_le_bytes([a, b, c, d, high, low, protocol, 0])
}

/// Address bits of a [`short`] key.
const SHORT_ADDRESS: u64 = u32::MAX as u64;

impl ExactIndex {
    /// Adds a context behind those that were added before. Returns the keys that are new.
    pub(crate) fn add(&mut self, index: usize, keys: &[ExactKey]) -> Vec<ExactKey> {
        let is_new = |key: &ExactKey| {
            let before = self.v4.len() + self.v6.len();
            if key.version == 4 {
                self.v4.entry(short(*key)).or_insert(index);
            } else {
                self.v6.entry(*key).or_insert(index);
            }
            self.v4.len() + self.v6.len() > before
        };
        keys.iter().copied().filter(is_new).collect()
    }

    /// The first context that has a key.
    pub(crate) fn owner(&self, key: &ExactKey) -> Option<usize> {
        let found = if key.version == 4 { self.v4.get(&short(*key)) } else { self.v6.get(key) };
        found.copied()
    }

    /// The first context whose exact rules hold for a frame.
    pub(crate) fn find(&self, frame: &[u8], headers: &Headers) -> Option<usize> {
        let key = key(frame, headers)?;
        if key.version == 4 {
            return self.find_v4(short(key));
        }
        let any = ExactKey { address: ExactKey::ANY_ADDRESS, ..key };
        first(self.v6.get(&key), self.v6.get(&any))
    }

    /// [`find`](Self::find) for a [plain](Headers::plain_end) frame.
    #[inline]
    pub(crate) fn find_plain(&self, frame: &[u8]) -> Option<usize> {
        const IP: usize = Headers::PLAIN_IP as usize;
        const L4: usize = Headers::PLAIN_L4 as usize;
        let head: &[u8; L4 + 4] = frame.first_chunk()?;
        let &[a, b, c, d] = head[IP + 16..].first_chunk()?;
        self.find_v4(u64::from_le_bytes([a, b, c, d, head[L4 + 2], head[L4 + 3], UDP, 0]))
    }

    #[inline]
    fn find_v4(&self, key: u64) -> Option<usize> {
        first(self.v4.get(&key), self.v4.get(&(key & !SHORT_ADDRESS)))
    }
}

/// The first of two contexts.
#[inline]
fn first(one: Option<&usize>, other: Option<&usize>) -> Option<usize> {
    one.into_iter().chain(other).min().copied()
}

/// The key of a frame, with its destination address.
fn key(frame: &[u8], headers: &Headers) -> Option<ExactKey> {
    let (ip, l4) = (usize::from(headers.ip?), usize::from(headers.l4?));
    if ![TCP, UDP].contains(&headers.protocol) {
        return None;
    }
    let packet = frame.get(..usize::try_from(headers.end).ok()?)?;
    let port = packet.get(l4..)?.first_chunk::<4>().map(|[_, _, high, low]| [*high, *low])?;
    let mut address = ExactKey::ANY_ADDRESS;
    match headers.ip_version {
        4 => address[..4].copy_from_slice(packet.get(ip + 16..ip + 20)?),
        _ => address.copy_from_slice(packet.get(ip + 24..ip + 40)?),
    }
    Some(ExactKey { address, port, version: headers.ip_version, protocol: headers.protocol })
}

#[cfg(test)]
mod tests {
    use spin_abi::rules::ExactKey;

    use super::split;
    use crate::compile::compile;

    /// Number of tests that stay in the list, and the keys.
    fn split_text(text: &str) -> (usize, Vec<ExactKey>) {
        let (tests, keys) = split(&compile(&text.parse().expect("rules")).expect("few tests"));
        (tests.len(), keys)
    }

    fn key(version: u8, protocol: u8, address: &[u8], port: u16) -> ExactKey {
        let mut bytes = [0; 16];
        bytes[..address.len()].copy_from_slice(address);
        ExactKey { address: bytes, port: port.to_be_bytes(), version, protocol }
    }

    #[test]
    fn rules_of_protocol_port_and_address_are_exact() {
        assert_eq!(split_text("udp dport 9999"), (0, vec![key(4, 17, &[], 9999), key(6, 17, &[], 9999)]));
        assert_eq!(split_text("ip and tcp dport 80"), (0, vec![key(4, 6, &[], 80)]));
        assert_eq!(
            split_text("ip dst 10.0.0.1 and udp dport 1-2").1,
            [1, 2].map(|port| key(4, 17, &[10, 0, 0, 1], port))
        );
        let address = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(split_text("udp dport 9 and ip6 dst 2001:db8::1"), (0, vec![key(6, 17, &address, 9)]));
        let (left, keys) = split_text("udp dport 9 and ip dst 10.0.0.1 or icmp echo or tcp dport 1-64");
        assert_eq!((left, keys.len()), (2, 1 + 2 * 64));
    }

    #[test]
    fn all_other_rules_stay_in_the_list() {
        for text in [
            "any",
            "udp",
            "icmp echo",
            "ip dst 10.0.0.1",
            "udp sport 9",
            "udp dport 1-65",
            "udp dport 9 and udp sport 9",
            "udp dport 9 and ip dst 10.0.0.0/24",
            "udp dport 9 and ip dst 0.0.0.0",
            "udp dport 9 and ip6 dst ::",
            "udp dport 9 and ip src 10.0.0.1",
            "udp dport 9 and ip src 10.0.0.1 and ip dst 10.0.0.2",
            "udp dport 9 and vlan 5",
            "udp dport 9 and ether type 0x0800",
            "udp dport 9 and payload[0:1] = 1",
            "udp dport 9 and tcp dport 9",
            "ip6 dst 2001:db8::/96 and udp dport 9",
        ] {
            let (left, keys) = split_text(text);
            assert!(left > 0 && keys.is_empty(), "{text}: {left} tests, {keys:?}");
        }
    }
}
