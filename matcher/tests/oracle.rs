//! The compiled table against a naive reading of the rules, on random frames.

use core::net::IpAddr;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq};
use proptest::{collection::vec, proptest};
use spin_abi::rules::{Base, END_OF_RULE, ExactKey, KeyRule, RuleSet, Target};
use spin_matcher::evaluate::any_rule_holds;
use spin_matcher::rule::{Eom, Prefix, Range, Rules, Side, Term, Transport};
use spin_matcher::testing::{addressed_frames, frames, overlapping_entries, plain_frames, rules, targets, terms};
use spin_matcher::{Headers, MessageKey, Table, TableEntry};
use spin_testing::bounded;

/// Documentation of a term, transcribed.
fn term_holds(term: &Term, frame: &[u8], headers: &Headers) -> bool {
    let at = |position: Option<u16>, offset: usize| {
        let index = usize::from(position?) + offset;
        (index < headers.end as usize).then(|| frame[index])
    };
    let half = |position, offset| Some(u16::from_be_bytes([at(position, offset)?, at(position, offset + 1)?]));
    match *term {
        Term::Ip(version) => headers.ip_version == version as u8,
        Term::Network { side, prefix } => address(frame, headers, side).is_some_and(|address| within(prefix, address)),
        Term::Protocol { version, protocol } => {
            headers.protocol == protocol.get() && version.is_none_or(|version| headers.ip_version == version as u8)
        }
        Term::Port { transport, side, first, last } => {
            let protocol = if transport == Transport::Tcp { 6 } else { 17 };
            let port = half(headers.l4, if side == Side::Source { 0 } else { 2 });
            headers.protocol == protocol && port.is_some_and(|port| first <= port && port <= last)
        }
        Term::Icmp { version, kind, code } => {
            let protocol = if version as u8 == 4 { 1 } else { 58 };
            headers.ip_version == version as u8
                && headers.protocol == protocol
                && at(headers.l4, 0) == Some(kind)
                && code.is_none_or(|code| at(headers.l4, 1) == Some(code))
        }
        Term::EtherType(ethertype) => headers.ethertype == ethertype,
        Term::EtherAddress { side, address } => {
            let start = if side == Side::Source { 6 } else { 0 };
            frame.get(start..start + 6) == Some(&address)
        }
        Term::Vlan(id) => {
            let half = |at: usize| frame.get(at..at + 2).map(|half| u16::from_be_bytes([half[0], half[1]]));
            matches!(half(12), Some(0x8100 | 0x88a8))
                && id.is_none_or(|id| half(14).is_some_and(|control| control & 0xfff == id))
        }
        Term::Word(range) => range_holds(&range, frame, headers),
    }
}

fn address(frame: &[u8], headers: &Headers, side: Side) -> Option<IpAddr> {
    let ip = &frame[usize::from(headers.ip?)..];
    let source = side == Side::Source;
    Some(if headers.ip_version == 4 {
        let start = if source { 12 } else { 16 };
        IpAddr::from(<[u8; 4]>::try_from(&ip[start..start + 4]).ok()?)
    } else {
        let start = if source { 8 } else { 24 };
        IpAddr::from(<[u8; 16]>::try_from(&ip[start..start + 16]).ok()?)
    })
}

fn within(prefix: Prefix, address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => format!("{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("{:0128b}", address.to_bits()),
    };
    let length = usize::from(prefix.length());
    prefix.address().is_ipv4() == address.is_ipv4() && bits(prefix.address())[..length] == bits(address)[..length]
}

/// Byte by byte: every byte that the mask selects must be present, or reads as zero if the field says so.
fn range_holds(range: &Range, frame: &[u8], headers: &Headers) -> bool {
    let field = range.field();
    let (position, limit) = match field.base {
        Base::Frame => (Some(0), frame.len()),
        Base::Ip => (headers.ip, headers.end as usize),
        Base::L4 => (headers.l4, headers.end as usize),
        Base::Payload => (headers.payload, headers.end as usize),
        Base::Kind => {
            let masked = headers.kind() & range.mask();
            return range.min() <= masked && masked <= range.max();
        }
    };
    let Some(position) = position else { return false };
    if field.base == Base::Frame && frame.len() < 4 && !field.zero_beyond {
        return false;
    }
    let (mut value, width) = (0_u32, field.width as usize);
    for index in 0..width {
        let shift = 8 * if field.little_endian { index } else { width - 1 - index };
        let selected = range.mask() >> shift & 0xff != 0;
        let at = usize::from(position) + usize::from(field.offset) + index;
        if at < limit {
            value |= u32::from(frame[at]) << shift;
        } else if selected && !field.zero_beyond {
            return false;
        }
    }
    let masked = value & range.mask();
    range.min() <= masked && masked <= range.max()
}

fn rules_hold(rules: &Rules, frame: &[u8], headers: &Headers) -> bool {
    rules.rules.iter().any(|rule| rule.terms.iter().all(|term| term_holds(term, frame, headers)))
}

fn eom_holds(eom: &Eom, frame: &[u8], headers: &Headers) -> bool {
    match eom {
        Eom::Always => true,
        Eom::Never => false,
        Eom::When(rules) => rules_hold(rules, frame, headers),
    }
}

fn entries() -> impl Strategy<Value = Vec<TableEntry>> {
    let entry =
        (rules(), rules(), any::<(bool, bool)>(), targets()).prop_map(|(rules, eom, (always, never), target)| {
            let eom = match (always, never) {
                (true, true) => Eom::Always,
                (true, false) => Eom::Never,
                _ => Eom::When(eom),
            };
            TableEntry { rules, eom, target, ..TableEntry::default() }
        });
    vec(entry, 0..4).prop_map(|mut entries| {
        for (context, entry) in (100..).zip(&mut entries) {
            entry.context = context;
        }
        entries
    })
}

/// Target of a frame that matches a rule set, as the set's documentation has it.
fn target_of(rules: &RuleSet, frame: &[u8], headers: &Headers) -> Option<Target> {
    let destination = address(frame, headers, Side::Destination);
    let ports = headers.l4.map(usize::from).and_then(|l4| frame[..headers.end as usize].get(l4..l4 + 4));
    let has_key = |rule: &&KeyRule| {
        let key = &rule.key;
        let [a, b, c, d, ..] = key.address;
        let address = if key.version == 4 { IpAddr::from([a, b, c, d]) } else { IpAddr::from(key.address) };
        (headers.ip_version, headers.protocol) == (key.version, key.protocol)
            && ports.is_some_and(|ports| ports[2..] == key.port)
            && (key.address == ExactKey::ANY_ADDRESS || destination == Some(address))
    };
    let (any, narrow): (Vec<&KeyRule>, Vec<&KeyRule>) =
        rules.keys.iter().filter(has_key).partition(|rule| rule.key.address == ExactKey::ANY_ADDRESS);
    let key = match (any.first(), narrow.first()) {
        (Some(any), Some(narrow)) if any.has_narrower => Some(narrow),
        (any, narrow) => any.or(narrow),
    };
    let mut end = 0;
    for rule in rules.tests.split_inclusive(|test| test.flags & END_OF_RULE != 0) {
        end += rule.len();
        if key.is_some_and(|key| end > usize::from(key.tests_before)) {
            break;
        }
        if any_rule_holds(rule, frame, headers) {
            return Some(rules.targets.get(end - 1).copied().unwrap_or_default());
        }
    }
    key.map(|key| key.target)
}

/// Lookup as the engine does it.
fn find(table: &Table, frame: &[u8]) -> Option<(usize, bool, MessageKey)> {
    table.find(frame, |index, key, eom| (index, eom, key))
}

#[test]
fn terms_that_exclude_each_other_are_found() {
    let contradicts = |text: &str| text.parse::<Rules>().expect(text).rules[0].contradiction().is_some();
    for text in [
        "ip and ip6",
        "udp and tcp dport 80",
        "udp dport 1 and udp dport 2-9",
        "arp and udp sport 1 and ip",
        "ip src 10.0.0.0/8 and ip src 11.0.0.1",
        "vlan 1 and vlan 2",
        "icmp echo and icmp echo-reply",
        "icmp and ip6 src ::1",
    ] {
        assert!(contradicts(text), "{text}");
    }
    for text in [
        "udp dport 1-5 and udp dport 5-9",
        "ip src 10.0.0.0/8 and ip src 10.1.0.0/16",
        "udp sport 1 and udp dport 2",
        "any",
    ] {
        assert!(!contradicts(text), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: bounded(500, 1500), ..ProptestConfig::default() })]

    #[test]
    fn the_table_says_what_the_rules_say(entries in entries(), frames in vec(frames(), 1..12)) {
        let table = Table::new(&entries).expect("few tests");
        for frame in &frames {
            let headers = Headers::parse(frame);
            let expected = entries.iter().position(|entry| rules_hold(&entry.rules, frame, &headers)).map(|index| {
                let entry = &entries[index];
                (entry.context, index, eom_holds(&entry.eom, frame, &headers), entry.key.extract(frame, &headers))
            });
            let found = table.match_frame(frame, &headers);
            prop_assert_eq!(found.map(|found| (found.context, found.index, found.eom, found.key)), expected);
            let target = found.map(|found| entries[found.index].target);
            prop_assert_eq!(target_of(table.rules(), frame, &headers), target);
            prop_assert_eq!(find(&table, frame), found.map(|found| (found.index, found.eom, found.key)));
        }
    }

    #[test]
    fn frames_go_to_the_target_of_their_context(entries in overlapping_entries(), frames in vec(addressed_frames(), 1..30)) {
        let table = Table::new(&entries).expect("few tests");
        for frame in &frames {
            let headers = Headers::parse(frame);
            let target = table.match_frame(frame, &headers).map(|found| entries[found.index].target);
            prop_assert_eq!(target_of(table.rules(), frame, &headers), target);
        }
    }

    #[test]
    fn the_table_for_plain_frames_is_the_table(entries in entries(), frames in vec(plain_frames(), 1..30)) {
        let table = Table::new(&entries).expect("few tests");
        for frame in &frames {
            let found = table.match_frame(frame, &Headers::parse(frame));
            prop_assert_eq!(find(&table, frame), found.map(|found| (found.index, found.eom, found.key)));
        }
    }

    #[test]
    fn no_frame_matches_terms_that_exclude_each_other(terms in vec(terms(), 2..5), frames in vec(frames(), 1..12)) {
        let rule = spin_matcher::rule::Rule { terms };
        if let Some((one, two)) = rule.contradiction() {
            for frame in &frames {
                let headers = Headers::parse(frame);
                prop_assert!(!(term_holds(&one, frame, &headers) && term_holds(&two, frame, &headers)), "{one}, {two}");
            }
        }
    }

    #[test]
    fn two_rules_hold_together_where_both_hold(rules in (rules(), rules()), frames in vec(frames(), 1..12)) {
        let (one, two) = (&rules.0.rules[0], &rules.1.rules[0]);
        let together = Rules { rules: spin_matcher::conjunction::both(one, two).into_iter().collect() };
        for frame in &frames {
            let headers = Headers::parse(frame);
            let holds = |rule: &spin_matcher::rule::Rule| rule.terms.iter().all(|term| term_holds(term, frame, &headers));
            prop_assert_eq!(rules_hold(&together, frame, &headers), holds(one) && holds(two), "{} and {}", one, two);
        }
    }

    #[test]
    fn a_single_term_says_what_it_says(term in terms(), frames in vec(frames(), 1..12)) {
        let rules = Rules { rules: vec![spin_matcher::rule::Rule { terms: vec![term] }] };
        let tests = spin_matcher::compile::compile(&rules).expect("few tests");
        for frame in &frames {
            let headers = Headers::parse(frame);
            prop_assert_eq!(any_rule_holds(&tests, frame, &headers), term_holds(&term, frame, &headers));
        }
    }
}

/// Checks that the generators meet both outcomes of every kind of term.
#[test]
fn every_kind_of_term_is_seen_holding_and_failing() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::<String, [u32; 2]>::new();
    for _ in 0..5000 {
        let (terms, frame) = (vec(terms(), 4), frames()).new_tree(&mut runner).expect("a value").current();
        for term in terms {
            let name = format!("{term:?}").chars().take_while(|c| c.is_alphanumeric()).collect();
            let holds = term_holds(&term, &frame, &Headers::parse(&frame));
            seen.entry(name).or_default()[usize::from(holds)] += 1;
        }
    }
    assert_eq!(seen.len(), 9, "{seen:?}");
    assert!(seen.values().all(|counts| counts.iter().all(|count| *count >= 10)), "{seen:?}");
}
