//! FPsPIN's rulesets: four rules over 32-bit words of the frame, in one encoding of spind's own.
//!
//! * A rule holds when `start <= word[idx] & mask <= end`. The word is the frame's bytes `4 * idx` to `4 * idx + 3` as a big-endian
//!   number, and so are the constants. Upstream's registers hold both byte-swapped.
//! * Rules 0 to 2, joined by AND or OR, decide which frames match. Rule 3 decides which of them end their message.
//! * A zero mask with start 0 always holds. Upstream writes "no rule here" like this.
//! * Words beyond the frame never hold, and rules may read all of it. In [`Beyond::Zero`], as in the RTL, rules see only the frame's
//!   first [`SEEN`] bytes, followed by zeroes.
//! * [`message_queue`] is upstream's mapping of frames to message queues, for contexts that request it.

use spin_abi::rules::Base;

use crate::key::{KeyBytes, KeySpec};
pub use crate::message_queue::{MESSAGE_QUEUES, message_queue};
use crate::rule::{Eom, Field, MAX_OFFSET, Range, Rule, Rules, Term, Width};

/// Number of bytes of a frame that the RTL's matching reads. The others read as zero.
pub const SEEN: u32 = 66;

/// One of the four rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpspinRule {
    /// Index of the word in the frame.
    pub idx: u32,
    /// Bits that are compared.
    pub mask: u32,
    /// Minimum of the masked word.
    pub start: u32,
    /// Maximum of the masked word.
    pub end: u32,
}

/// Combination of the rules 0 to 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All rules must hold.
    And,
    /// One rule must hold.
    Or,
}

/// Value of words beyond the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// No value: a rule on them does not hold.
    Fails,
    /// Zero, also for everything behind the first [`SEEN`] bytes, as in FPsPIN's RTL (`--compat fpspin`).
    Zero,
}

/// Four rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// Rules 0 to 2 match frames, rule 3 ends the message.
    pub rules: [FpspinRule; 4],
    /// Combination of rules 0 to 2.
    pub mode: Mode,
}

/// A rule that does not depend on the frame, or one that does.
enum Condition {
    Always,
    Never,
    When(Term),
}

impl Ruleset {
    /// Rules that hold for the frames that match.
    #[must_use]
    pub fn rules(&self, beyond: Beyond) -> Rules {
        let conditions = self.rules[..3].iter().map(|rule| rule.condition(beyond));
        match self.mode {
            Mode::And => all(conditions),
            Mode::Or => any(conditions),
        }
    }

    /// Predicate that holds for frames that end their message.
    #[must_use]
    pub fn eom(&self, beyond: Beyond) -> Eom {
        match self.rules[3].condition(beyond) {
            Condition::Always => Eom::Always,
            Condition::Never => Eom::Never,
            Condition::When(term) => Eom::When(Rules { rules: vec![Rule { terms: vec![term] }] }),
        }
    }
}

/// Combines several rulesets of one context. A frame matches if one ruleset matches it. It ends its message if rule 3 of a matching
/// ruleset holds.
#[must_use]
pub fn together(rulesets: &[Ruleset], beyond: Beyond) -> (Rules, Eom) {
    let rules = Rules { rules: rulesets.iter().flat_map(|ruleset| ruleset.rules(beyond).rules).collect() };
    if let [only] = rulesets {
        return (rules, only.eom(beyond));
    }
    let ends = |ruleset: &Ruleset| match ruleset.eom(beyond) {
        Eom::Never => Vec::new(),
        Eom::Always => ruleset.rules(beyond).rules,
        Eom::When(ends) => both(&ruleset.rules(beyond).rules, &ends.rules),
    };
    let ends: Vec<Rule> = rulesets.iter().flat_map(ends).collect();
    let eom = match ends {
        _ if ends == rules.rules => Eom::Always,
        _ if ends.is_empty() => Eom::Never,
        _ => Eom::When(Rules { rules: ends }),
    };
    (rules, eom)
}

/// Rules that hold when one rule of each list does.
fn both(these: &[Rule], those: &[Rule]) -> Vec<Rule> {
    let joined = |a: &Rule, b: &Rule| Rule { terms: a.terms.iter().chain(&b.terms).copied().collect() };
    these.iter().flat_map(|a| those.iter().map(move |b| joined(a, b))).collect()
}

fn all(conditions: impl Iterator<Item = Condition>) -> Rules {
    let mut rule = Rule::default();
    for condition in conditions {
        match condition {
            Condition::Always => {}
            Condition::Never => return Rules::default(),
            Condition::When(term) => rule.terms.push(term),
        }
    }
    Rules { rules: vec![rule] }
}

fn any(conditions: impl Iterator<Item = Condition>) -> Rules {
    let rule = |condition| match condition {
        Condition::Always => Some(Rule::default()),
        Condition::Never => None,
        Condition::When(term) => Some(Rule { terms: vec![term] }),
    };
    Rules { rules: conditions.filter_map(rule).collect() }
}

impl FpspinRule {
    fn condition(&self, beyond: Beyond) -> Condition {
        let zero_beyond = beyond == Beyond::Zero;
        let mask = if zero_beyond { self.mask & seen(self.idx) } else { self.mask };
        if self.start > self.end || self.start > mask {
            return Condition::Never;
        }
        if mask == 0 {
            return Condition::Always;
        }
        let Some(offset) = self.idx.checked_mul(4).and_then(|at| u16::try_from(at).ok()).filter(|at| *at <= MAX_OFFSET)
        else {
            // The word is beyond any frame.
            return Condition::Never;
        };
        let field = Field { zero_beyond, ..Field::new(Base::Frame, offset, Width::Four) };
        match Range::new(field, mask, self.start, self.end) {
            Ok(range) => Condition::When(Term::Word(range)),
            Err(_) => Condition::Never,
        }
    }
}

/// Bits of a word that the RTL reads.
const fn seen(idx: u32) -> u32 {
    match SEEN.saturating_sub(idx.saturating_mul(4)) {
        0 => 0,
        bytes @ 1..4 => u32::MAX << (32 - 8 * bytes),
        _ => u32::MAX,
    }
}

/// FPsPIN's message id: bytes 44 to 47 of the frame (SLMP's `msg_id` behind 42 bytes of headers and 2 of flags). spind adds the flow, so
/// that the ids of two senders do not collide. In [`Beyond::Zero`] they collide, as upstream: see [`message_queue`].
#[must_use]
pub fn key(beyond: Beyond) -> KeySpec {
    if beyond == Beyond::Zero {
        return KeySpec::fpspin();
    }
    let id = KeyBytes { base: Base::Frame, offset: 44, length: 4 };
    KeySpec::new(true, vec![id]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Beyond, FpspinRule, Mode, Ruleset, key};
    use crate::headers::Headers;
    use crate::key::KeySpec;
    use crate::rule::{Eom, Rules};
    use crate::table::{Table, TableEntry};

    const EMPTY: FpspinRule = FpspinRule { idx: 0, mask: 0, start: 0, end: 0 };
    const FALSE: FpspinRule = FpspinRule { idx: 0, mask: 0, start: 1, end: 0 };
    /// IPv4 frames: the EtherType is in the high half of word 3.
    const IP: FpspinRule = FpspinRule { idx: 3, mask: 0xffff_0000, start: 0x0800_0000, end: 0x0800_0000 };

    /// UDP port 9330 at bytes 36 and 37: the high half of word 9.
    const SLMP: FpspinRule = FpspinRule { idx: 9, mask: 0xffff_0000, start: 9330 << 16, end: 9330 << 16 };
    /// End of message: the top bit of the flags at 42, which are the low half of word 10.
    const EOM: FpspinRule = FpspinRule { idx: 10, mask: 0x8000, start: 0x8000, end: 0x8000 };

    fn matched(ruleset: Ruleset, beyond: Beyond, frame: &[u8]) -> Option<bool> {
        let (rules, eom) = (ruleset.rules(beyond), ruleset.eom(beyond));
        let table = Table::new(&[TableEntry { context: 0, rules, eom, key: key(beyond), ..TableEntry::default() }])
            .expect("few tests");
        table.match_frame(frame, &Headers::parse(frame)).map(|found| found.eom)
    }

    fn slmp(flags: u8) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12] = 8;
        frame[36..38].copy_from_slice(&9330_u16.to_be_bytes());
        frame[42] = flags;
        frame
    }

    #[test]
    fn the_slmp_ruleset_finds_its_frames_and_their_ends() {
        let ruleset = Ruleset { rules: [IP, SLMP, EMPTY, EOM], mode: Mode::And };
        for beyond in [Beyond::Fails, Beyond::Zero] {
            assert_eq!(matched(ruleset, beyond, &slmp(0xc0)), Some(true));
            assert_eq!(matched(ruleset, beyond, &slmp(0x40)), Some(false));
            assert_eq!(matched(ruleset, beyond, &[0; 60]), None);
        }
    }

    #[test]
    fn modes_and_constants() {
        let rules = |rules: [FpspinRule; 3], mode| {
            Ruleset { rules: [rules[0], rules[1], rules[2], FALSE], mode }.rules(Beyond::Fails).to_string()
        };
        let ip = "frame[12:4] & 0xffff0000 = 0x08000000";
        assert_eq!(rules([EMPTY, IP, EMPTY], Mode::And), ip);
        assert_eq!(rules([FALSE, IP, FALSE], Mode::Or), ip);
        assert_eq!(rules([FALSE, IP, EMPTY], Mode::And), "never");
        assert_eq!(rules([EMPTY, IP, FALSE], Mode::Or), format!("any or {ip}"));
        assert_eq!(Ruleset { rules: [EMPTY, EMPTY, EMPTY, FALSE], mode: Mode::And }.eom(Beyond::Fails), Eom::Never);
        assert_eq!(Ruleset { rules: [EMPTY; 4], mode: Mode::And }.eom(Beyond::Fails), Eom::Always);
    }

    #[test]
    fn words_beyond_the_frame_fail_or_read_zero() {
        let zero = |idx| Ruleset { rules: [FpspinRule { idx, mask: u32::MAX, start: 0, end: 5 }; 4], mode: Mode::And };
        for (idx, inside) in [(14, true), (15, false), (8191, false), (8192, false), (u32::MAX, false)] {
            assert_eq!(matched(zero(idx), Beyond::Fails, &[0; 60]).is_some(), inside, "word {idx}");
            assert_eq!(matched(zero(idx), Beyond::Zero, &[0; 60]), Some(true), "word {idx}");
        }
        // The frame contains half of word 15.
        let mut frame = [0; 62];
        assert_eq!(matched(zero(15), Beyond::Zero, &frame), Some(true));
        frame[61] = 1;
        assert_eq!(matched(zero(15), Beyond::Zero, &frame), None);
    }

    #[test]
    fn its_rules_print_and_read_back() {
        let ruleset = Ruleset {
            rules: [IP, EOM, FpspinRule { mask: 0xff, start: 3, end: u32::MAX, ..IP }, EMPTY],
            mode: Mode::Or,
        };
        for beyond in [Beyond::Fails, Beyond::Zero] {
            let rules = ruleset.rules(beyond);
            assert_eq!(rules.to_string().parse::<Rules>(), Ok(rules));
        }
        assert_eq!(key(Beyond::Fails), "flow + frame[44:4]".parse::<KeySpec>().expect("a key"));
        assert_eq!(key(Beyond::Zero), "fpspin".parse::<KeySpec>().expect("a key"));
    }
}
