//! Evaluation of compiled tests, as [`spin_abi::rules`] defines it and the XDP program implements it.

use spin_abi::rules::{Base, END_OF_RULE, LITTLE_ENDIAN, Test, ZERO_BEYOND};

use crate::headers::Headers;

/// Whether any rule of `tests` holds for `frame`, whose headers are `headers`.
#[must_use]
#[inline]
pub fn any_rule_holds(tests: &[Test], frame: &[u8], headers: &Headers) -> bool {
    let mut all = true;
    for test in tests {
        all = all && holds(test, frame, headers);
        if test.flags & END_OF_RULE != 0 {
            if all {
                return true;
            }
            all = true;
        }
    }
    false
}

/// Whether one test holds.
#[must_use]
#[inline]
pub fn holds(test: &Test, frame: &[u8], headers: &Headers) -> bool {
    let Some((position, limit)) = extent(test.base, frame, headers) else {
        return test.base == Base::Kind && in_range(test, headers.kind());
    };
    word(&frame[..limit], position + i64::from(test.offset), test.flags).is_some_and(|word| in_range(test, word))
}

#[inline]
pub(crate) fn in_range(test: &Test, word: u32) -> bool {
    (test.min..=test.max).contains(&(word & test.mask))
}

/// Position of `base` in `frame` and end of its bytes, at most the frame's length.
#[inline]
pub(crate) fn extent(base: Base, frame: &[u8], headers: &Headers) -> Option<(i64, usize)> {
    let end = usize::try_from(headers.end).unwrap_or(usize::MAX).min(frame.len());
    match base {
        Base::Frame => Some((0, frame.len())),
        Base::Ip => headers.ip.map(|at| (i64::from(at), end)),
        Base::L4 => headers.l4.map(|at| (i64::from(at), end)),
        Base::Payload => headers.payload.map(|at| (i64::from(at), end)),
        Base::Kind => None,
    }
}

/// The four bytes at `start`. `None` when they are not all among `bytes`, unless missing bytes read as zero.
#[inline]
pub(crate) fn word(bytes: &[u8], start: i64, flags: u8) -> Option<u32> {
    // A position before the first byte becomes an index far beyond the last one.
    let whole = bytes.get(start.cast_unsigned() as usize..).and_then(<[u8]>::first_chunk);
    let word = match whole {
        Some(&word) => word,
        None if flags & ZERO_BEYOND != 0 => zero_filled(bytes, start),
        None => return None,
    };
    Some(if flags & LITTLE_ENDIAN == 0 { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
}

#[cold]
fn zero_filled(bytes: &[u8], start: i64) -> [u8; 4] {
    [0, 1, 2, 3].map(|i| usize::try_from(start + i).ok().and_then(|at| bytes.get(at)).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{any_rule_holds, holds};
    use crate::headers::Headers;
    use spin_abi::rules::{Base, END_OF_RULE, LITTLE_ENDIAN, Test, ZERO_BEYOND};

    const FRAME: [u8; 6] = [1, 2, 3, 4, 5, 6];

    fn test(offset: i16, flags: u8, value: u32) -> Test {
        Test { base: Base::Frame, flags, offset, mask: u32::MAX, min: value, max: value }
    }

    fn held(test: Test) -> bool {
        holds(&test, &FRAME, &Headers::parse(&FRAME))
    }

    #[test]
    fn words_are_read_in_the_order_asked_for() {
        assert!(held(test(2, 0, 0x0304_0506)));
        assert!(held(test(2, LITTLE_ENDIAN, 0x0605_0403)));
    }

    #[test]
    fn bytes_beyond_fail_or_read_zero_as_flagged() {
        assert!(!held(test(3, 0, 0x0405_0600)));
        assert!(held(test(3, ZERO_BEYOND, 0x0405_0600)));
        assert!(held(test(-1, ZERO_BEYOND, 0x0001_0203)));
        assert!(!held(test(-1, 0, 0x0001_0203)));
        assert!(held(test(i16::MAX, ZERO_BEYOND | LITTLE_ENDIAN, 0)));
        assert!(held(test(i16::MIN, ZERO_BEYOND, 0)));
    }

    #[test]
    fn an_absent_base_fails_even_with_zero_beyond() {
        assert!(!held(Test { base: Base::L4, ..test(0, ZERO_BEYOND, 0) }));
    }

    #[test]
    fn rules_are_alternatives_of_conjunctions() {
        let (yes, no) = (test(0, 0, 0x0102_0304), test(0, 0, 0));
        let end = |test: Test| Test { flags: test.flags | END_OF_RULE, ..test };
        let headers = Headers::parse(&FRAME);
        assert!(!any_rule_holds(&[], &FRAME, &headers));
        assert!(any_rule_holds(&[end(no), yes, end(yes)], &FRAME, &headers));
        assert!(!any_rule_holds(&[yes, end(no), no, end(yes)], &FRAME, &headers));
    }
}
