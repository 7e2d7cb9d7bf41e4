//! Map from host program counters to guest instructions.

use std::collections::BTreeSet;

/// Source location of the epilogue for exits after faults. No instruction has this address: see [`source_location`].
pub(crate) const FAULT_RETURN: u32 = 0xffff_fffe;

/// Source location of returns from the handler.
pub(crate) const HANDLER_RETURN: u32 = 0xffff_fffa;

/// Source location of code for the instruction at `pc`. The lowest bit marks atomics, whose faults are those of stores.
pub(crate) const fn source_location(pc: u32, atomic: bool) -> u32 {
    pc | atomic as u32
}

/// Guest instruction of a host instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Address of the guest instruction.
    pub(crate) pc: u32,
    /// Whether it is an atomic, whose faults are those of stores.
    pub(crate) atomic: bool,
    /// Whether the host instruction is in the function's body, not in its prologue or an epilogue.
    pub(crate) body: bool,
    /// Whether the guest instruction is in a loop that waits.
    pub(crate) waits: bool,
    /// Host address of the epilogue that leaves the function from anywhere in its body.
    pub(crate) fault_return: usize,
}

/// Part of a function with one source location, by host offsets.
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

/// Map of a translation. Cranelift does not report every instruction: bytes behind a span of the body or of an epilogue
/// belong to that span. Prologues are in no span.
#[derive(Clone, Debug, Default)]
pub(crate) struct PcMap {
    base: usize,
    /// Ascending.
    functions: Vec<Function>,
    /// Ascending.
    spans: Vec<Span>,
    /// First and last guest instructions of blocks in loops that wait.
    wait_blocks: BTreeSet<(u32, u32)>,
}

/// Whether there is a fault return among spans as [`PcMap::push_function`] takes them.
pub(crate) fn has_fault_return(mut spans: impl Iterator<Item = (u32, u32, u32)>) -> bool {
    spans.any(|(.., location)| location == FAULT_RETURN)
}

impl PcMap {
    /// Makes an empty map for code without an address.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a function at offset `start` with its spans from Cranelift: start, end and source location, relative to the
    /// function. Returns `None` if there is no fault return among them.
    pub(crate) fn push_function(
        &mut self,
        start: u32,
        len: u32,
        spans: impl Iterator<Item = (u32, u32, u32)>,
    ) -> Option<()> {
        let mut fault_return = None;
        for (from, to, location) in spans {
            if location == FAULT_RETURN {
                // The epilogue's first instruction.
                fault_return = fault_return.or(Some(start + from));
            }
            if location != u32::MAX && from < to {
                self.spans.push(Span { start: start + from, end: start + to, location });
            }
        }
        self.functions.push(Function { start, end: start + len, fault_return: fault_return? });
        Some(())
    }

    /// Size of the map, for [`PcMap::truncate`].
    pub(crate) const fn size(&self) -> (usize, usize) {
        (self.functions.len(), self.spans.len())
    }

    /// Removes functions that were added since the map had this size.
    pub(crate) fn truncate(&mut self, (functions, spans): (usize, usize)) {
        self.functions.truncate(functions);
        self.spans.truncate(spans);
    }

    /// Adds blocks of loops that wait, by their first and last guest instructions.
    pub(crate) fn push_wait_blocks(&mut self, blocks: impl Iterator<Item = (u32, u32)>) {
        self.wait_blocks.extend(blocks);
    }

    /// Whether there are loops that wait.
    pub(crate) fn has_waits(&self) -> bool {
        !self.wait_blocks.is_empty()
    }

    /// Sets the host address of the code.
    pub(crate) const fn set_base(&mut self, base: usize) {
        self.base = base;
    }

    /// Host address and length in bytes of each function, in the order in which they were added.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.functions
            .iter()
            .map(|function| (self.base + function.start as usize, (function.end - function.start) as usize))
    }

    /// Location of the host instruction at `pc`; `None` outside of functions. Neither allocates nor locks.
    pub(crate) fn find(&self, pc: usize) -> Option<Location> {
        let offset = u32::try_from(pc.checked_sub(self.base)?).ok()?;
        let function = self.functions.get(self.functions.partition_point(|function| function.end <= offset))?;
        let at = self.spans.partition_point(|span| span.end <= offset);
        let here = self.spans.get(at).filter(|span| span.start <= offset);
        let before = here.or_else(|| self.spans[..at].last()).filter(|span| span.start >= function.start);
        let is_guest = |span: &&Span| span.location != FAULT_RETURN && span.location != HANDLER_RETURN;
        let nearest = before.filter(is_guest).or_else(|| self.spans[..at].iter().rev().find(is_guest));
        let nearest = nearest.or_else(|| self.spans[at..].iter().find(is_guest))?;
        let pc = nearest.location & !1;
        // Blocks seldom overlap, and only the time of the watchdog's next check depends on the result.
        let block = self.wait_blocks.range(..=(pc, u32::MAX)).next_back();
        Some(Location {
            pc,
            atomic: nearest.location & 1 != 0,
            body: before.is_some_and(|span| is_guest(&span)),
            waits: block.is_some_and(|&(_, last)| pc <= last),
            fault_return: self.base + function.fault_return as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FAULT_RETURN, Location, PcMap};

    #[test]
    fn host_addresses_map_to_instructions() {
        let mut map = PcMap::new();
        let first = [(4, 8, 0x1d00_0000), (8, 9, 0x1d00_0005), (10, 12, u32::MAX), (12, 13, FAULT_RETURN)];
        map.push_function(0, 16, first.into_iter()).expect("there is a fault return");
        map.push_function(64, 16, [(0, 2, 0x1d00_0010), (2, 3, FAULT_RETURN)].into_iter())
            .expect("there is a fault return");
        map.set_base(1000);
        let body = |pc, atomic, fault_return| Some(Location { pc, atomic, body: true, waits: false, fault_return });
        let outside = |pc, atomic, fault_return| Some(Location { pc, atomic, body: false, waits: false, fault_return });
        assert_eq!(map.find(1003), outside(0x1d00_0000, false, 1012), "prologue");
        assert_eq!(map.find(1004), body(0x1d00_0000, false, 1012));
        assert_eq!(map.find(1008), body(0x1d00_0004, true, 1012));
        assert_eq!(map.find(1009), body(0x1d00_0004, true, 1012), "no span: merged or moved code");
        assert_eq!(map.find(1012), outside(0x1d00_0004, true, 1012), "epilogue");
        assert_eq!(map.find(1013), outside(0x1d00_0004, true, 1012), "behind the epilogue's span");
        assert_eq!(map.find(1064), body(0x1d00_0010, false, 1066));
        assert_eq!(map.find(1066), outside(0x1d00_0010, false, 1066));
        assert_eq!(map.find(1080), None);
        assert_eq!(map.find(999), None);
        assert!(PcMap::new().push_function(0, 4, std::iter::empty()).is_none());
    }

    #[test]
    fn wait_loops_include_their_last_instruction() {
        let mut map = PcMap::new();
        let spans = (0..6).map(|index| (index, index + 1, 0x1d00_0000 + 2 * index));
        map.push_function(0, 7, spans.chain([(6, 7, FAULT_RETURN)])).expect("there is a fault return");
        map.push_wait_blocks(
            [(0x1d00_0008, 0x1d00_0008), (0x1d00_0002, 0x1d00_0004), (0x1d00_0002, 0x1d00_0004)].into_iter(),
        );
        let waits = [0, 1, 2, 3, 4, 5].map(|at| map.find(at).expect("inside the function").waits);
        assert_eq!(waits, [false, true, true, false, true, false]);
    }
}
