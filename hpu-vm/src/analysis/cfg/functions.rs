//! Where functions begin, as far as symbols and direct calls tell.

use std::collections::BTreeSet;
use std::ops::Range;

use super::flood::Flood;
use super::flow::Flow;
use crate::code::Code;

/// First addresses of functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    starts: BTreeSet<u32>,
}

impl Functions {
    /// Finds the functions of `code` that are reached from `entries`.
    pub(crate) fn new(code: &Code, entries: &[u32], taken: &BTreeSet<u32>) -> Self {
        let mut starts: BTreeSet<u32> = code.functions().iter().chain(entries).copied().collect();
        for (_, flow) in Flood::new(code, entries.iter().copied(), taken).visited() {
            if let Flow::Call { target: Some(target), .. } = flow {
                starts.insert(target);
            }
        }
        Self { starts }
    }

    /// The addresses from the last start at or before `pc` up to the next start.
    pub(crate) fn extent(&self, pc: u32) -> Range<u32> {
        let start = self.starts.range(..=pc).next_back().copied().unwrap_or(0);
        let end = pc.checked_add(1).and_then(|next| self.starts.range(next..).next().copied()).unwrap_or(u32::MAX);
        start..end
    }

    /// Adds another start: long functions are divided.
    pub(super) fn divide(&mut self, start: u32) {
        self.starts.insert(start);
    }
}
