//! Table for plain frames: UDP over IPv4 without tags, options and fragments, like most traffic.
//!
//! All header positions are constants in these frames. Tests on the kind of a frame are therefore decided when the table is built, which
//! removes most rules for other frames. The remaining tests get fixed offsets in the frame.

use spin_abi::rules::{Base, END_OF_RULE, LITTLE_ENDIAN, Test};

use crate::evaluate::{in_range, word};
use crate::headers::Headers;

/// A test at a fixed offset.
#[derive(Clone, Debug)]
struct PlainTest {
    /// Offset in the frame.
    at: i64,
    /// Whether padding belongs to the bytes of the test.
    whole_frame: bool,
    /// The test. The last test of a rule carries the flag for it.
    test: Test,
}

impl PlainTest {
    /// `None` for a test on the kind, whose result is the same for all plain frames.
    fn new(test: Test) -> Option<Self> {
        let at = match test.base {
            Base::Frame => 0,
            Base::Ip => Headers::PLAIN_IP,
            Base::L4 => Headers::PLAIN_L4,
            Base::Payload => Headers::PLAIN_PAYLOAD,
            Base::Kind => return None,
        };
        Some(Self { at: i64::from(at) + i64::from(test.offset), whole_frame: test.base == Base::Frame, test })
    }

    /// Whether the test holds for `frame`, whose packet ends at `end`, at most the frame's length.
    #[inline]
    fn holds(&self, frame: &[u8], end: usize) -> bool {
        let bytes = if self.whole_frame { frame } else { frame.get(..end).unwrap_or(frame) };
        word(bytes, self.at, self.test.flags).is_some_and(|word| in_range(&self.test, word))
    }
}

/// Test whether some bits of the packet have a given value. Most tests have this form.
#[derive(Clone, Copy, Debug)]
struct Equal {
    at: u32,
    /// Mask and value in the memory order of the packet's bytes.
    mask: u32,
    value: u32,
}

impl Equal {
    /// Test that holds for every packet.
    const ALWAYS: Self = Self { at: 0, mask: 0, value: 0 };
    /// Test that holds for no packet.
    const NEVER: Self = Self { at: 0, mask: 0, value: 1 };
    /// Test beyond every packet, so that its result is always `None`.
    const UNKNOWN: Self = Self { at: u32::MAX, mask: 0, value: 0 };

    /// `None` for a test of another form.
    fn new(test: &PlainTest) -> Option<Self> {
        let PlainTest { at, test: Test { mask, min, max, flags, .. }, .. } = *test;
        let in_memory = |word: u32| if flags & LITTLE_ENDIAN == 0 { word.to_be() } else { word.to_le() };
        let at = u32::try_from(at).ok().filter(|_| min == max)?;
        Some(Self { at, mask: in_memory(mask), value: in_memory(min) })
    }

    /// Whether the test holds. `None` when the word is not completely in the packet.
    #[inline(always)]
    fn holds(self, packet: &[u8]) -> Option<bool> {
        let at = self.at as usize;
        let word: &[u8; 4] = packet.get(at..at + 4)?.first_chunk()?;
        Some(u32::from_ne_bytes(*word) & self.mask == self.value)
    }
}

/// Rules, specialised for plain frames.
#[derive(Clone, Debug)]
pub(crate) struct PlainRules {
    /// Single test that decides most packets. [`Equal::UNKNOWN`] if the rules need more than one.
    quick: Equal,
    /// Whether a rule holds for every plain frame.
    always: bool,
    /// Remaining tests of the rules that may hold, at least one per rule.
    tests: Vec<PlainTest>,
}

impl PlainRules {
    /// Rules that hold for all plain frames.
    pub(crate) const ALWAYS: Self = Self { quick: Equal::ALWAYS, always: true, tests: Vec::new() };

    /// Specialises `tests` for plain frames.
    pub(crate) fn new(tests: &[Test]) -> Self {
        let kind_fits = |test: &Test| test.base != Base::Kind || in_range(test, Headers::PLAIN_KIND);
        let mut all = Vec::new();
        for rule in tests.split_inclusive(|test| test.flags & END_OF_RULE != 0) {
            if !rule.iter().all(kind_fits) {
                continue;
            }
            let mut left: Vec<PlainTest> = rule.iter().copied().filter_map(PlainTest::new).collect();
            let Some(last) = left.last_mut() else { return Self::ALWAYS };
            last.test.flags |= END_OF_RULE;
            all.append(&mut left);
        }
        let quick = match &all[..] {
            [] => Some(Equal::NEVER),
            [only] => Equal::new(only),
            _ => None,
        };
        Self { quick: quick.unwrap_or(Equal::UNKNOWN), always: false, tests: all }
    }

    /// Whether a rule holds for `frame`, which is plain and whose packet ends at `end`.
    #[inline(always)]
    pub(crate) fn hold(&self, frame: &[u8], end: usize) -> bool {
        let packet = frame.get(..end).unwrap_or(frame);
        match self.quick.holds(packet) {
            Some(holds) => holds,
            None => self.any_holds(frame, end),
        }
    }

    #[cold]
    #[inline(never)]
    fn any_holds(&self, frame: &[u8], end: usize) -> bool {
        let mut all = true;
        for test in &self.tests {
            all = all && test.holds(frame, end);
            if test.test.flags & END_OF_RULE != 0 {
                if all {
                    return true;
                }
                all = true;
            }
        }
        self.always
    }
}
