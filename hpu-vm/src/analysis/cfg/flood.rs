//! Code that is reached from some addresses.

use std::collections::{BTreeMap, BTreeSet};

use super::flow::Flow;
use crate::code::Code;

/// Instructions reached from some addresses, by any number of calls and returns.
pub(super) struct Flood {
    visited: BTreeMap<u32, Flow>,
    /// There are jumps to addresses that registers hold.
    pub(super) uses_taken: bool,
}

impl Flood {
    pub(super) fn new(code: &Code, from: impl Iterator<Item = u32>, taken: &BTreeSet<u32>) -> Self {
        let mut flood = Self { visited: BTreeMap::new(), uses_taken: false };
        flood.follow_all(code, from.collect());
        if flood.uses_taken {
            flood.follow_all(code, taken.iter().copied().collect());
        }
        flood
    }

    /// Visited instructions in ascending order.
    pub(super) fn visited(&self) -> impl Iterator<Item = (u32, Flow)> + '_ {
        self.visited.iter().map(|(&pc, &flow)| (pc, flow))
    }

    pub(super) fn contains(&self, pc: u32) -> bool {
        self.visited.contains_key(&pc)
    }

    fn follow_all(&mut self, code: &Code, mut work: Vec<u32>) {
        while let Some(pc) = work.pop() {
            self.follow(code, pc, &mut work);
        }
    }

    fn follow(&mut self, code: &Code, mut pc: u32, work: &mut Vec<u32>) {
        let mut before = None;
        while let Some(decoded) = code.fetch(pc).filter(|_| !self.visited.contains_key(&pc)) {
            let flow = Flow::of(pc, decoded, before);
            self.visited.insert(pc, flow);
            before = Some((pc, decoded.inst));
            match flow {
                Flow::Next => pc = decoded.next(pc),
                Flow::Jump(target) => (pc, before) = (target, None),
                Flow::Branch(target) => {
                    work.push(target);
                    pc = decoded.next(pc);
                }
                Flow::Call { target, back } => {
                    self.uses_taken |= target.is_none();
                    work.extend(target);
                    (pc, before) = (back, None);
                }
                Flow::Indirect => {
                    self.uses_taken = true;
                    return;
                }
                Flow::Return | Flow::Stop => return,
            }
        }
    }
}
