//! From host program counters to guest instructions.

use super::emit::{FAULT_RETURN, RETURNED};

/// What a host instruction of a translation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// The guest instruction.
    pub(crate) pc: u32,
    /// It is an atomic: its faults are those of stores.
    pub(crate) atomic: bool,
    /// The host instruction is of the function's body, not of its prologue or an epilogue.
    pub(crate) body: bool,
    /// The guest instruction is of a loop that waits.
    pub(crate) waits: bool,
    /// Host address of the epilogue by which the function is left from anywhere in its body.
    pub(crate) fault_return: usize,
}

/// Part of a function: host offsets and what they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
    location: u32,
}

/// One function of a translation.
#[derive(Clone, Debug)]
struct Function {
    /// Offset of its first byte.
    start: u32,
    /// Offset behind its last byte.
    end: u32,
    /// Offset of its fault return.
    fault_return: u32,
}

/// What the code of a translation belongs to. Cranelift does not tell it of every instruction: what lies behind a span of the
/// body, or of an epilogue, is of the same. Prologues are in no span.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sites {
    base: usize,
    /// Ascending.
    functions: Vec<Function>,
    /// Ascending.
    spans: Vec<Span>,
    /// First and last guest instructions of blocks of loops that wait.
    waits: Vec<(u32, u32)>,
}

/// Whether there is a fault return among spans as [`Sites::push`] takes them.
pub(crate) fn has_fault_return(mut spans: impl Iterator<Item = (u32, u32, u32)>) -> bool {
    spans.any(|(.., location)| location == FAULT_RETURN)
}

impl Sites {
    /// Sites of code that is yet to be placed.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a function that lies at `start` with what Cranelift says of it: start, end and location of spans, from the
    /// function's beginning. `None` when its fault return is not among them.
    pub(crate) fn push(&mut self, start: u32, len: u32, spans: impl Iterator<Item = (u32, u32, u32)>) -> Option<()> {
        let mut fault_return = None;
        for (from, to, location) in spans {
            if location == FAULT_RETURN {
                // The first instruction of that epilogue.
                fault_return = fault_return.or(Some(start + from));
            }
            if location != u32::MAX && from < to {
                self.spans.push(Span { start: start + from, end: start + to, location });
            }
        }
        self.functions.push(Function { start, end: start + len, fault_return: fault_return? });
        Some(())
    }

    /// How much there is, to [go back](Sites::go_back) to.
    pub(crate) const fn mark(&self) -> (usize, usize) {
        (self.functions.len(), self.spans.len())
    }

    /// Forgets the functions that were added since.
    pub(crate) fn go_back(&mut self, (functions, spans): (usize, usize)) {
        self.functions.truncate(functions);
        self.spans.truncate(spans);
    }

    /// Adds blocks of loops that wait: their first and last guest instructions.
    pub(crate) fn push_waits(&mut self, blocks: impl Iterator<Item = (u32, u32)>) {
        self.waits.extend(blocks);
        self.waits.sort_unstable();
        self.waits.dedup();
    }

    /// Whether there are such.
    pub(crate) const fn wait(&self) -> bool {
        !self.waits.is_empty()
    }

    /// The code lies at `base`.
    pub(crate) const fn place(&mut self, base: usize) {
        self.base = base;
    }

    /// What is at host address `pc`, if a function is. Neither allocates nor locks.
    pub(crate) fn at(&self, pc: usize) -> Option<Site> {
        let offset = u32::try_from(pc.checked_sub(self.base)?).ok()?;
        let function = self.functions.get(self.functions.partition_point(|function| function.end <= offset))?;
        let at = self.spans.partition_point(|span| span.end <= offset);
        let here = self.spans.get(at).filter(|span| span.start <= offset);
        let before = here.or_else(|| self.spans[..at].last()).filter(|span| span.start >= function.start);
        let is_guest = |span: &&Span| span.location != FAULT_RETURN && span.location != RETURNED;
        let nearest = before.filter(is_guest).or_else(|| self.spans[..at].iter().rev().find(is_guest));
        let nearest = nearest.or_else(|| self.spans[at..].iter().find(is_guest))?;
        let pc = nearest.location & !1;
        // They seldom overlap, and nothing but when the clock looks again depends on it.
        let block = self.waits.partition_point(|&(first, _)| first <= pc).checked_sub(1).map(|index| self.waits[index]);
        Some(Site {
            pc,
            atomic: nearest.location & 1 != 0,
            body: before.is_some_and(|span| is_guest(&span)),
            waits: block.is_some_and(|(_, last)| pc <= last),
            fault_return: self.base + function.fault_return as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FAULT_RETURN, Site, Sites};

    #[test]
    fn only_bodies_are_found() {
        let mut sites = Sites::new();
        let first = [(4, 8, 0x1d00_0000), (8, 9, 0x1d00_0005), (10, 12, u32::MAX), (12, 13, FAULT_RETURN)];
        sites.push(0, 16, first.into_iter()).expect("it has a fault return");
        sites.push(64, 16, [(0, 2, 0x1d00_0010), (2, 3, FAULT_RETURN)].into_iter()).expect("so has this");
        sites.place(1000);
        let site = |pc, atomic, fault_return| Some(Site { pc, atomic, body: true, waits: false, fault_return });
        let near = |pc, atomic, fault_return| Some(Site { pc, atomic, body: false, waits: false, fault_return });
        assert_eq!(sites.at(1003), near(0x1d00_0000, false, 1012), "prologue");
        assert_eq!(sites.at(1004), site(0x1d00_0000, false, 1012));
        assert_eq!(sites.at(1008), site(0x1d00_0004, true, 1012));
        assert_eq!(sites.at(1009), site(0x1d00_0004, true, 1012), "merged with others, or moved");
        assert_eq!(sites.at(1012), near(0x1d00_0004, true, 1012), "an epilogue");
        assert_eq!(sites.at(1013), near(0x1d00_0004, true, 1012), "still");
        assert_eq!(sites.at(1064), site(0x1d00_0010, false, 1066));
        assert_eq!(sites.at(1066), near(0x1d00_0010, false, 1066));
        assert_eq!(sites.at(1080), None);
        assert_eq!(sites.at(999), None);
        assert!(Sites::new().push(0, 4, std::iter::empty()).is_none());
    }

    #[test]
    fn loops_that_wait_are_known_to_their_last_instruction() {
        let mut sites = Sites::new();
        let spans = (0..6).map(|index| (index, index + 1, 0x1d00_0000 + 2 * index));
        sites.push(0, 7, spans.chain([(6, 7, FAULT_RETURN)])).expect("it has a fault return");
        sites.push_waits(
            [(0x1d00_0008, 0x1d00_0008), (0x1d00_0002, 0x1d00_0004), (0x1d00_0002, 0x1d00_0004)].into_iter(),
        );
        let waits = [0, 1, 2, 3, 4, 5].map(|at| sites.at(at).expect("of the function").waits);
        assert_eq!(waits, [false, true, true, false, true, false]);
    }
}
