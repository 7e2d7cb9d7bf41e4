//! The table for plain frames: UDP over IPv4 without tags, options and fragments, as most frames are.
//!
//! All header positions are known beforehand there. So when the table is built, tests on the kind of a frame are decided, which
//! leaves out most rules that do not concern these frames, and the other tests get their places in the frame.

use spin_abi::rules::{Base, END_OF_RULE, LITTLE_ENDIAN, Test};

use crate::evaluate::{in_range, word};
use crate::headers::Headers;

/// A test whose place is known.
#[derive(Clone, Debug)]
struct PlainTest {
    /// From the frame's first byte on.
    at: i64,
    /// Padding counts too.
    whole_frame: bool,
    /// The last one of its rule is marked as such.
    test: Test,
}

impl PlainTest {
    /// `None`: it is one on the kind, which says the same of all plain frames.
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

    /// Whether it holds for `frame`, whose packet ends at `end`, at most the frame's length.
    #[inline]
    fn holds(&self, frame: &[u8], end: usize) -> bool {
        let bytes = if self.whole_frame { frame } else { frame.get(..end).unwrap_or(frame) };
        word(bytes, self.at, self.test.flags).is_some_and(|word| in_range(&self.test, word))
    }
}

/// A test whether some bits of the packet have a value: most are.
#[derive(Clone, Copy, Debug)]
struct Equal {
    at: u32,
    /// Both as the packet's bytes are in memory.
    mask: u32,
    value: u32,
}

impl Equal {
    /// Holds for all.
    const ALWAYS: Self = Self { at: 0, mask: 0, value: 0 };
    /// Holds for none.
    const NEVER: Self = Self { at: 0, mask: 0, value: 1 };
    /// Is outside of all: nobody knows.
    const UNKNOWN: Self = Self { at: u32::MAX, mask: 0, value: 0 };

    /// `None`: it is another kind of test.
    fn new(test: &PlainTest) -> Option<Self> {
        let PlainTest { at, test: Test { mask, min, max, flags, .. }, .. } = *test;
        let in_memory = |word: u32| if flags & LITTLE_ENDIAN == 0 { word.to_be() } else { word.to_le() };
        let at = u32::try_from(at).ok().filter(|_| min == max)?;
        Some(Self { at, mask: in_memory(mask), value: in_memory(min) })
    }

    /// Whether it holds; `None` where not all of the word is in the packet.
    #[inline(always)]
    fn holds(self, packet: &[u8]) -> Option<bool> {
        let at = self.at as usize;
        let word: &[u8; 4] = packet.get(at..at + 4)?.first_chunk()?;
        Some(u32::from_ne_bytes(*word) & self.mask == self.value)
    }
}

/// Rules, as they are to plain frames.
#[derive(Clone, Debug)]
pub(crate) struct PlainRules {
    /// What they say of most packets; [`Equal::UNKNOWN`] if that takes more than one test.
    quick: Equal,
    /// One of them holds, whatever is in the frame.
    always: bool,
    /// Those of each rule that may hold, one at least.
    tests: Vec<PlainTest>,
}

impl PlainRules {
    /// For all plain frames.
    pub(crate) const ALWAYS: Self = Self { quick: Equal::ALWAYS, always: true, tests: Vec::new() };

    /// What `tests` say of plain frames.
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
