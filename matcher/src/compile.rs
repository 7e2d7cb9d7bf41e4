//! From rules to the flat list of tests that the table and the XDP program evaluate.
//!
//! A test reads four bytes that must all be there, but a range needs only the bytes its mask selects. So the four
//! bytes are taken to *end* with the last selected one: `payload[0:1] = 1` reads the three bytes before the payload too,
//! which always exist, and holds for a payload of a single byte.

use spin_abi::rules::{Base, END_OF_RULE, LITTLE_ENDIAN, MAX_TESTS, Test, ZERO_BEYOND};

use crate::rule::{MAX_TERMS, Range, Rule, Rules};

/// Reason why rules could not be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A single rule is too long.
    #[error("a rule has {0} terms, at most {MAX_TERMS} fit: split it or use wider ranges")]
    TooManyTerms(usize),
    /// All rules together are too long.
    #[error("the rules need more than {MAX_TESTS} tests: use fewer rules, prefixes instead of addresses, or ranges")]
    TooManyTests,
}

/// Compiles `rules` in order. The result has at most [`MAX_TESTS`] tests and is empty when `rules` is `never`.
///
/// # Errors
/// When they need more tests than a table holds.
pub fn compile(rules: &Rules) -> Result<Vec<Test>, CompileError> {
    let mut tests = Vec::new();
    for rule in &rules.rules {
        compile_rule(rule, &mut tests)?;
        if tests.len() > MAX_TESTS {
            return Err(CompileError::TooManyTests);
        }
    }
    Ok(tests)
}

fn compile_rule(rule: &Rule, tests: &mut Vec<Test>) -> Result<(), CompileError> {
    if rule.terms.len() > MAX_TERMS {
        return Err(CompileError::TooManyTerms(rule.terms.len()));
    }
    for ranges in rule.alternatives() {
        let mut conjunction = Vec::new();
        for range in &ranges {
            add(&mut conjunction, test(range));
        }
        if conjunction.is_empty() {
            conjunction.push(ANY);
        }
        if let Some(last) = conjunction.last_mut() {
            last.flags |= END_OF_RULE;
        }
        tests.append(&mut conjunction);
    }
    Ok(())
}

/// Test that holds for every frame: a rule needs at least one test to carry [`END_OF_RULE`].
const ANY: Test = Test { base: Base::Kind, flags: 0, offset: 0, mask: 0, min: 0, max: 0 };

/// Adds `test` to a conjunction. Joins it with an equality on the same word if one test can express both.
fn add(conjunction: &mut Vec<Test>, test: Test) {
    for known in conjunction.iter_mut() {
        if *known == test {
            return;
        }
        if let Some(joined) = join(known, &test) {
            *known = joined;
            return;
        }
    }
    conjunction.push(test);
}

/// One test for two equalities on one word. Equalities that contradict each other stay two tests, which never hold.
fn join(a: &Test, b: &Test) -> Option<Test> {
    let same_word = (a.base, a.flags, a.offset) == (b.base, b.flags, b.offset);
    let equalities = a.min == a.max && b.min == b.max;
    let within = a.min & !a.mask == 0 && b.min & !b.mask == 0;
    let agree = (a.min ^ b.min) & a.mask & b.mask == 0;
    let value = a.min | b.min;
    (same_word && equalities && within && agree).then_some(Test { mask: a.mask | b.mask, min: value, max: value, ..*a })
}

/// The test of one range.
fn test(range: &Range) -> Test {
    let field = range.field();
    // No masked value exceeds the mask. A greater maximum is equivalent, but would not survive the shift.
    let (mask, min, max) = (range.mask(), range.min(), range.max().min(range.mask()));
    let unused = 8 * (4 - field.width as u32);
    let word = Word { offset: field.offset, mask: mask << unused, min: min << unused, max: max << unused };
    let (offset, word) = match field.base {
        Base::Kind => (0, word),
        // The window may stay anywhere, because bytes outside read as zero.
        _ if field.zero_beyond => (offset(field.offset, 0), word),
        base if field.little_endian => little_endian_window(base, word),
        base => big_endian_window(base, word),
    };
    let endian = if field.little_endian { LITTLE_ENDIAN } else { 0 };
    let beyond = if field.zero_beyond { ZERO_BEYOND } else { 0 };
    Test { base: field.base, flags: endian | beyond, offset, mask: word.mask, min: word.min, max: word.max }
}

/// A masked range over the four bytes at `offset`.
struct Word {
    offset: u16,
    mask: u32,
    min: u32,
    max: u32,
}

/// Moves the window back over the low-order bytes that the mask leaves out. Masked values are multiples of
/// `1 << shift`, so the minimum is rounded up and the maximum down.
fn big_endian_window(base: Base, word: Word) -> (i16, Word) {
    let back = window_shift(base, word.offset, word.mask.trailing_zeros() / 8);
    let shift = 8 * back;
    let min = word.min.div_ceil(1 << shift);
    (offset(word.offset, back), Word { mask: word.mask >> shift, min, max: word.max >> shift, ..word })
}

/// [`big_endian_window`] for a word whose last bytes are the high-order ones. No bit is lost: minimum and maximum are
/// at most the mask.
fn little_endian_window(base: Base, word: Word) -> (i16, Word) {
    let back = window_shift(base, word.offset, word.mask.leading_zeros() / 8);
    let shift = 8 * back;
    let (mask, min, max) = (word.mask << shift, word.min << shift, word.max << shift);
    (offset(word.offset, back), Word { mask, min, max, ..word })
}

/// Number of bytes by which a window moves back: all bytes left out at its end, but not beyond the frame's start.
fn window_shift(base: Base, offset: u16, left_out: u32) -> u32 {
    let left_out = left_out.min(3);
    if base == Base::Frame { left_out.min(offset.into()) } else { left_out }
}

/// Offset of a window as `i16`. Fields start at most at `MAX_OFFSET`, so the result fits.
fn offset(at: u16, back: u32) -> i16 {
    i16::try_from(i32::from(at) - back.cast_signed()).unwrap_or(i16::MAX)
}

#[cfg(test)]
mod tests {
    use super::{CompileError, compile};
    use crate::rule::{Rule, Rules};
    use spin_abi::rules::{Base, END_OF_RULE, LITTLE_ENDIAN, Test, ZERO_BEYOND};

    fn tests(text: &str) -> Vec<Test> {
        compile(&text.parse().expect("a rule")).expect("few tests")
    }

    fn test(base: Base, flags: u8, offset: i16, mask: u32, min: u32, max: u32) -> Test {
        Test { base, flags, offset, mask, min, max }
    }

    #[test]
    fn a_port_is_a_protocol_and_a_range_that_ends_with_the_port() {
        let kind = test(Base::Kind, 0, 0, 0xff, 17, 17);
        let port = test(Base::L4, END_OF_RULE, 0, 0xffff, 80, 90);
        assert_eq!(tests("udp dport 80-90"), [kind, port]);
        assert_eq!(tests("udp sport 80-90"), [kind, Test { offset: -2, ..port }]);
    }

    #[test]
    fn equalities_on_one_word_become_one_test() {
        let kind = test(Base::Kind, 0, 0, 0xffff, 0x0411, 0x0411);
        let compiled = tests("ip src 10.0.0.0/24 and udp dport 9 and ip and udp sport 7");
        assert_eq!(compiled.iter().filter(|test| test.base == Base::Kind).collect::<Vec<_>>(), [&kind]);
        assert_eq!(compiled.len(), 4);
        assert_eq!(tests("udp and tcp").len(), 2, "a contradiction stays one");
    }

    #[test]
    fn windows_end_with_the_last_selected_byte() {
        let end = END_OF_RULE;
        assert_eq!(tests("payload[0:1] = 7"), [test(Base::Payload, end, -3, 0xff, 7, 7)]);
        assert_eq!(tests("payload[0:4] & 0xff000000 = 0x07000000"), tests("payload[0:1] = 7"));
        assert_eq!(
            tests("payload[1:4 le] & 0xff = 7"),
            [test(Base::Payload, end | LITTLE_ENDIAN, -2, 0xff << 24, 7 << 24, 7 << 24)]
        );
        assert_eq!(tests("frame[0:1] = 7"), [test(Base::Frame, end, 0, 0xff << 24, 7 << 24, 7 << 24)]);
        assert_eq!(tests("frame[2:1] = 7"), [test(Base::Frame, end, 0, 0xff00, 0x700, 0x700)]);
        assert_eq!(
            tests("frame[9:1 zero] = 7"),
            [test(Base::Frame, end | ZERO_BEYOND, 9, 0xff << 24, 7 << 24, 7 << 24)]
        );
        // The multiples of 0x100 within these bounds are 2 and 3.
        assert_eq!(tests("ip[0:4] & 0xff00 in 0x101..0x3ff"), [test(Base::Ip, end, -1, 0xff, 2, 3)]);
        assert_eq!(tests("ip[0:2] & 0x0f in 3..200"), [test(Base::Ip, end, -2, 0xf, 3, 0xf)]);
    }

    #[test]
    fn a_vlan_term_doubles_the_rule_once() {
        let compiled = tests("vlan 100 and vlan and udp");
        assert_eq!(compiled.iter().filter(|test| test.flags & END_OF_RULE != 0).count(), 2);
        assert_eq!(compiled.len(), 6);
    }

    #[test]
    fn any_is_one_test_and_never_is_none() {
        assert_eq!(tests("any"), [test(Base::Kind, END_OF_RULE, 0, 0, 0, 0)]);
        assert_eq!(tests("never"), []);
    }

    #[test]
    fn too_many_tests_are_refused() {
        let rule: Rule = "udp dport 1".parse::<Rules>().expect("a rule").rules.remove(0);
        let rules = |count| Rules { rules: vec![rule.clone(); count] };
        assert_eq!(compile(&rules(256)).map(|tests| tests.len()), Ok(512));
        assert_eq!(compile(&rules(257)), Err(CompileError::TooManyTests));
        let long = Rule { terms: vec![rule.terms[0]; 513] };
        assert_eq!(compile(&Rules { rules: vec![long] }), Err(CompileError::TooManyTerms(513)));
    }
}
