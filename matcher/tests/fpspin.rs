//! FPsPIN's rulesets and message ids, compared with a naive evaluation of its documentation.

use proptest::prelude::*;
use spin_matcher::fpspin::{Beyond, FpspinRule, Mode, Ruleset, key, message_queue, together};
use spin_matcher::{Headers, Table, TableEntry};
use spin_testing::bounded;

/// Word of the frame. `None` if it is incomplete and missing bytes do not read as zero.
fn word(frame: &[u8], idx: u32, beyond: Beyond) -> Option<u32> {
    let mut word = 0;
    for place in 0..4u64 {
        let at = u64::from(idx) * 4 + place;
        let byte = usize::try_from(at).ok().and_then(|at| frame.get(at)).copied();
        let byte = match beyond {
            Beyond::Fails => byte?,
            Beyond::Zero if at >= 66 => 0,
            Beyond::Zero => byte.unwrap_or(0),
        };
        word |= u32::from(byte) << (24 - 8 * place);
    }
    Some(word)
}

/// `start <= word[idx] & mask <= end`. A rule with an empty mask does not depend on the word's presence. Where words may be missing, a
/// rule does not depend on bytes that its mask leaves out.
fn holds(rule: &FpspinRule, frame: &[u8], beyond: Beyond) -> bool {
    let masked = match (rule.mask, word(frame, rule.idx, beyond)) {
        (0, _) => Some(0),
        (mask, word) => word.map(|word| word & mask),
    };
    masked.is_some_and(|masked| rule.start <= masked && masked <= rule.end)
}

fn matches(ruleset: &Ruleset, frame: &[u8], beyond: Beyond) -> bool {
    let [a, b, c, _] = ruleset.rules.map(|rule| holds(&rule, frame, beyond));
    match ruleset.mode {
        Mode::And => a && b && c,
        Mode::Or => a || b || c,
    }
}

/// Whether a ruleset matches the frame, and whether a matching one ends its message.
fn naive(rulesets: &[Ruleset], frame: &[u8], beyond: Beyond) -> Option<bool> {
    let taking: Vec<_> = rulesets.iter().filter(|ruleset| matches(ruleset, frame, beyond)).collect();
    if taking.is_empty() { None } else { Some(taking.iter().any(|ruleset| holds(&ruleset.rules[3], frame, beyond))) }
}

/// Frames with few different bytes and lengths around the boundaries of headers and words.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![3 => Just(0u8), 2 => Just(1), 1 => any::<u8>()], 0..90)
}

/// Masks cover whole words: for an incomplete word, the engine's rules may decide on half of it.
fn rule() -> impl Strategy<Value = FpspinRule> {
    let idx = prop_oneof![10 => 0..20u32, 1 => Just(8191), 1 => Just(1 << 30), 1 => Just(u32::MAX)];
    let mask = prop_oneof![4 => Just(u32::MAX), 2 => Just(0), 3 => Just(0xff00_00ff), 1 => any::<u32>().prop_map(|m| m | 0xff)];
    let value = || prop_oneof![4 => 0..3u32, 1 => Just(0x0001_0000), 1 => Just(0x0100_0000), 2 => any::<u32>(), 1 => Just(u32::MAX)];
    (idx, mask, value(), value()).prop_map(|(idx, mask, start, end)| FpspinRule { idx, mask, start, end })
}

fn ruleset() -> impl Strategy<Value = Ruleset> {
    let mode = prop_oneof![Just(Mode::And), Just(Mode::Or)];
    (proptest::array::uniform4(rule()), mode).prop_map(|(rules, mode)| Ruleset { rules, mode })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: bounded(500, 1500), ..ProptestConfig::default() })]

    #[test]
    fn rulesets_decide_as_their_words_say(
        rulesets in proptest::collection::vec(ruleset(), 1..4),
        frames in proptest::collection::vec(frame(), 1..8),
    ) {
        for beyond in [Beyond::Fails, Beyond::Zero] {
            let (rules, eom) = together(&rulesets, beyond);
            // Rules are sent as text.
            let rules = rules.to_string().parse().expect("rules read back");
            let eom = eom.to_string().parse().expect("an end of message reads back");
            let table = Table::new(&[TableEntry { context: 0, rules, eom, key: key(beyond), ..TableEntry::default() }]).expect("few tests");
            for frame in &frames {
                let found = table.match_frame(frame, &Headers::parse(frame)).map(|found| found.eom);
                prop_assert_eq!(found, naive(&rulesets, frame, beyond), "{:?} {:?}", beyond, frame);
            }
        }
    }

    #[test]
    fn message_ids_are_ten_bits_of_which_four_are_left(frame in proptest::collection::vec(any::<u8>(), 0..70)) {
        let mut bytes = frame.clone();
        bytes.resize(70, 0);
        let id = u32::from_le_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]) % 1024;
        prop_assert_eq!(u32::from(message_queue(&frame)), id % 16);
        let named = key(Beyond::Zero).extract(&frame, &Headers::parse(&frame));
        prop_assert_eq!((u32::from(named.first_byte()), named.to_vec().len()), (id % 16, 1));
    }

    #[test]
    fn senders_collide_in_upstreams_mapping_alone(id in any::<[u8; 4]>(), a in any::<[u8; 4]>(), b in any::<[u8; 4]>()) {
        let frame = |source: [u8; 4]| {
            let mut frame = vec![0; 60];
            (frame[12], frame[14], frame[17], frame[23], frame[39]) = (8, 0x45, 46, 17, 26);
            frame[26..30].copy_from_slice(&source);
            frame[44..48].copy_from_slice(&id);
            frame
        };
        let named = |frame: &[u8], beyond| key(beyond).extract(frame, &Headers::parse(frame));
        prop_assert_eq!(named(&frame(a), Beyond::Zero), named(&frame(b), Beyond::Zero));
        prop_assert_eq!(named(&frame(a), Beyond::Fails) == named(&frame(b), Beyond::Fails), a == b);
    }
}

/// Checks that the comparison above meets frames of each kind.
#[test]
fn decisions_of_each_kind_are_made() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts = std::collections::HashMap::new();
    for _ in 0..4000 {
        let rulesets = proptest::collection::vec(ruleset(), 1..4).new_tree(&mut runner).expect("a value").current();
        let frame = frame().new_tree(&mut runner).expect("a value").current();
        for beyond in [Beyond::Fails, Beyond::Zero] {
            *counts.entry((beyond == Beyond::Zero, naive(&rulesets, &frame, beyond))).or_insert(0) += 1;
        }
    }
    assert!(counts.len() == 6 && counts.values().all(|&count| count > 50), "{counts:?}");
}
