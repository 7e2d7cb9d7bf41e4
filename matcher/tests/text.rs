//! Rules and keys as text: accepted texts, refused texts with their errors, and printing that reads back.

use proptest::prelude::{ProptestConfig, any, prop_assert_eq};
use proptest::{collection::vec, proptest, sample::select};
use spin_matcher::testing::{keys, rules};
use spin_matcher::{Eom, KeySpec, Rules};

/// Accepted texts and their printed form. An empty form means that the text prints as typed.
const ACCEPTED: &[(&str, &str)] = &[
    ("udp dport 9999", ""),
    ("udp sport 53", ""),
    ("tcp dport 80-90", ""),
    ("tcp dport 80 - 80", "tcp dport 80"),
    ("udp", ""),
    ("UDP DPort 53", "udp dport 53"),
    ("udp dst port 53", "udp dport 53"),
    ("tcp src portrange 80-90", "tcp sport 80-90"),
    ("src 10.0.0.1", "ip src 10.0.0.1"),
    ("src host 10.0.0.1", "ip src 10.0.0.1"),
    ("ip dst net 10.0.0.0/8", "ip dst 10.0.0.0/8"),
    ("dst net 2001:DB8::/32", "ip6 dst 2001:db8::/32"),
    ("arp", "ether type 0x0806"),
    ("proto 17", "udp"),
    ("icmp", ""),
    ("ip proto 1", "icmp"),
    ("ip6 proto 1", ""),
    ("icmp echo", ""),
    ("icmp echo-reply", ""),
    ("icmp type 8 code 0", ""),
    ("icmp type 8", "icmp echo"),
    ("icmp type 3", ""),
    ("icmp6 echo", ""),
    ("icmp6 type 135", ""),
    ("ip src 10.0.0.0/24 and tcp dport 80", ""),
    ("ip dst 10.1.1.1", ""),
    ("ip dst 10.1.1.1/32", "ip dst 10.1.1.1"),
    ("ip src 0.0.0.0/0", ""),
    ("ip6 src 2001:db8::/32", ""),
    ("ip6 dst ::1", ""),
    ("ip", ""),
    ("ip6", ""),
    ("ip proto 47", ""),
    ("ether type 0x88b5", ""),
    ("ether type 2054", "ether type 0x0806"),
    ("ether dst aa:bb:cc:dd:ee:ff", ""),
    ("ether src 2:0:0:0:0:1", "ether src 02:00:00:00:00:01"),
    ("vlan 100", ""),
    ("vlan", ""),
    ("vlan and udp", ""),
    ("any", ""),
    ("any and udp", "udp"),
    ("any or udp", ""),
    ("never", ""),
    ("frame[12:2] = 0x0800", ""),
    ("ip[9:1] == 17", "ip[9:1] = 0x11"),
    ("l4[2:2] in 9000..9100", ""),
    ("l4 [ 2 : 2 ]in 9000 .. 9100", "l4[2:2] in 9000..9100"),
    ("payload[0:4] & 0xff000000 == 0x01000000", "payload[0:4] & 0xff000000 = 0x01000000"),
    ("frame[36:4 le zero] & 0x0000ffff = 0x00007224", ""),
    ("kind & 0x000000ff = 0x00000011", ""),
    (
        "  udp   dport 1  or icmp echo and ip src 10.0.0.1 or any ",
        "udp dport 1 or icmp echo and ip src 10.0.0.1 or any",
    ),
];

#[test]
fn what_a_person_types_is_read_and_printed() {
    for (text, printed) in ACCEPTED {
        let rules: Rules = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let expected = if printed.is_empty() { text } else { printed };
        assert_eq!(&rules.to_string(), expected, "{text}");
        assert_eq!(rules.to_string().parse(), Ok(rules), "{text}");
    }
}

/// Refused texts, the column that the error points at, and words in the error.
const REFUSED: &[(&str, usize, &str)] = &[
    ("", 1, "expected a condition"),
    ("udp dport", 10, "expected a port (0 to 65535), found the end"),
    ("udp dport 65536", 11, "expected a port (0 to 65535), found `65536`"),
    ("udp dport 90-80", 11, "port 90 is above 80"),
    ("udp dport http", 11, "expected a port"),
    ("udp dprot 9", 5, "expected `sport`, `dport`"),
    ("udp dport 9 sport 8", 13, "expected `and`, `or` or the end, found `sport`"),
    ("udp and", 8, "expected a condition"),
    ("udp or or", 8, "expected a condition"),
    ("(udp or tcp) and ip", 1, "no parentheses"),
    ("udp and (ip or ip6)", 9, "no parentheses"),
    ("not udp", 1, "there is no `not`"),
    ("!udp", 1, "there is no `not`"),
    ("src", 4, "an IPv4 network like"),
    ("udp and dst port 53", 9, "write `udp dport 53` or `tcp dport 53`"),
    ("port 53", 1, "write `udp sport 53 or udp dport 53`"),
    ("host 10.0.0.1", 1, "write `ip src 10.0.0.1 or ip dst 10.0.0.1`"),
    ("net 2001:db8::/32", 1, "write `ip6 src 2001:db8::/32 or ip6 dst 2001:db8::/32`"),
    ("udp port 53", 5, "write `udp sport 53 or udp dport 53`"),
    ("ip src 10.0.0.1/24", 8, "the network is 10.0.0.0/24"),
    ("ip src 10.0.0.0/33", 8, "33 bits is longer than an address of 32"),
    ("ip src 10.0.0", 8, "an IPv4 network like"),
    ("ip src 2001:db8::1", 8, "an IPv4 network like"),
    ("ip6 src 10.0.0.1", 9, "an IPv6 network like"),
    ("ip6 src fe80::1%eth0", 9, "an IPv6 network like"),
    ("ip proto 0", 10, "ip[9:1] = 0"),
    ("icmp ping", 6, "`echo`"),
    ("icmp type 256", 11, "an ICMP type (0 to 255)"),
    ("icmp type 8 code", 17, "an ICMP code"),
    ("ether dst aa:bb:cc:dd:ee", 11, "a MAC address"),
    ("ether dst aa:bb:cc:dd:ee:ff:00", 11, "a MAC address"),
    ("ether 5", 7, "`type`, `src` or `dst`"),
    ("vlan 4096", 6, "a VLAN id (0 to 4095)"),
    ("frame[12:3] = 1", 10, "1, 2 or 4 bytes"),
    ("frame[12] = 1", 9, "expected `:`"),
    ("frame[-1:4] = 1", 7, "an offset (0 to 32764)"),
    ("frame[32765:4] = 1", 7, "an offset"),
    ("frame[12:2] = 0x10000", 15, "a value (0 to 65535)"),
    ("frame[12:2] & 0xff00 = 0x0801", 22, "can never hold"),
    ("frame[12:2] & 0x1ff00 = 0", 1, "wider than the field"),
    ("frame[12:2] & 0 = 0", 1, "selects no bits"),
    ("frame[12:2] in 9..8", 1, "the range is empty"),
    ("frame[12:2] > 8", 13, "`&`, `=` or `in`"),
    ("frame[12:2 le] = 8", 1, "only fields of four bytes"),
    ("frame[12:2 xy] = 8", 12, "`]`, `le` or `zero`"),
    ("kind[0:4] = 8", 5, "`&`, `=` or `in`"),
    ("ёж udp", 1, "found `ёж`"),
    ("any ёж", 5, "found `ёж`"),
    ("never or udp", 7, "expected"),
];

#[test]
fn errors_point_at_the_column_and_say_what_was_expected() {
    for (text, column, words) in REFUSED {
        let error = text.parse::<Rules>().expect_err(text);
        assert_eq!(error.column, *column, "{text}: {error}");
        assert!(error.message.contains(words), "{text}: {error}");
    }
}

#[test]
fn long_texts_are_refused_and_not_repeated() {
    let long = ["udp"; 513].join(" or ");
    assert!(long.parse::<Rules>().expect_err("513 rules").message.contains("more than 512 conditions"));
    assert!(long.parse::<Rules>().expect_err("513 rules").column > 3000);
    let word = "x".repeat(100_000);
    assert!(word.parse::<Rules>().expect_err("not a rule").message.len() < 300);
    assert_eq!(["udp"; 512].join(" or ").parse::<Rules>().map(|rules| rules.rules.len()), Ok(512));
}

#[test]
fn lists_are_alternatives_and_name_the_wrong_one() {
    let rules = Rules::parse_list(&["udp or tcp", "icmp echo"]).expect("rules");
    assert_eq!(rules.to_string(), "udp or tcp or icmp echo");
    assert_eq!(Rules::parse_list::<&str>(&[]), Ok(Rules::default()));
    let error = Rules::parse_list(&["udp", "tpc"]).expect_err("a typing error");
    assert!(error.to_string().starts_with("rule 2: column 1: expected a condition"), "{error}");
    assert_eq!(Eom::parse_list(&["always"]), Ok(Eom::Always));
    assert_eq!(Eom::parse_list(&["never"]), Ok(Eom::Never));
    assert_eq!(Eom::parse_list(&["udp", "tcp"]).map(|eom| eom.to_string()), Ok("udp or tcp".to_owned()));
    assert!(Eom::parse_list(&["sometimes"]).is_err());
}

#[test]
fn keys_are_read_and_printed() {
    for text in ["flow", "flow + payload[2:4]", "ip[12:8], payload[0:4]", "frame[0:46]"] {
        assert_eq!(text.parse::<KeySpec>().map(|key| key.to_string()), Ok(text.to_owned()));
    }
    let refused = [
        ("", 1, "expected `flow`"),
        ("payload[0:4] + flow", 16, "`flow` (once, first)"),
        ("flow flow", 6, "`+`, `,` or the end"),
        ("flow + payload[0:5]", 1, "needs 6 bytes, at most 5 fit"),
        ("frame[0:47]", 1, "needs 48 bytes, at most 47 fit"),
        ("frame[0:0]", 1, "no bytes"),
        ("kind[0:4]", 1, "expected `flow`"),
        ("frame[0:256]", 9, "a number of bytes (0 to 255)"),
    ];
    for (text, column, words) in refused {
        let error = text.parse::<KeySpec>().expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.message.contains(words), "{text}: {error}");
    }
}

/// Pieces of rules, for texts that are nearly right.
const PIECES: &[&str] = &[
    "udp",
    "tcp",
    "icmp",
    "ip",
    "ip6",
    "src",
    "dst",
    "sport",
    "dport",
    "and",
    "or",
    "any",
    "never",
    "ether",
    "type",
    "vlan",
    "proto",
    "echo",
    "code",
    "kind",
    "frame[",
    "l4[",
    "]",
    ":",
    "&",
    "=",
    "in",
    "..",
    "-",
    "/",
    "10.0.0.0/8",
    "::1",
    "aa:bb:cc:dd:ee:ff",
    "0",
    "1",
    "4",
    "0x",
    "0xff",
    "4294967296",
    "le",
    "zero",
    "flow",
    "+",
    ",",
    "(",
    "é",
    "\u{3000}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

    #[test]
    fn rules_print_and_read_back(rules in rules()) {
        prop_assert_eq!(rules.to_string().parse(), Ok(rules));
    }

    #[test]
    fn keys_print_and_read_back(key in keys()) {
        prop_assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn whatever_is_accepted_prints_and_reads_back(pieces in vec((select(PIECES), any::<bool>()), 0..12)) {
        let text: String = pieces.iter().flat_map(|(piece, space)| [*piece, if *space { " " } else { "" }]).collect();
        if let Ok(rules) = text.parse::<Rules>() {
            prop_assert_eq!(rules.to_string().parse(), Ok(rules));
        }
        if let Ok(key) = text.parse::<KeySpec>() {
            prop_assert_eq!(key.to_string().parse(), Ok(key));
        }
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in any::<String>()) {
        if let (Ok(rules), Ok(key)) = (text.parse::<Rules>(), text.parse::<KeySpec>()) {
            panic!("one text is both {rules} and {key}");
        }
    }
}
