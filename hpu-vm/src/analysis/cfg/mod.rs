//! The control-flow graph of a region: basic blocks, with calls inlined.
//!
//! A region is guest code that becomes one function of the host. There are two kinds ([`Start`]): a handler with all
//! that it calls, and [shared regions](regions), which continue where another region is left.
//!
//! * [`targets`]: code addresses that an image contains, where computed jumps may lead.
//! * [`flow`], [`flood`], [`functions`]: control flow of instructions, reached code, where functions begin.
//! * [`context`], [`explore`]: from code to a graph.
//! * [`graph`]: the graph.
//! * [`loops`]: the loop forest.
//! * [`regions`]: the partition of shared code.

mod context;
mod explore;
mod flood;
mod flow;
mod functions;
mod graph;
mod loops;
mod regions;
mod targets;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use explore::{Scope, handler, shared};
pub(crate) use flow::Cost;
pub(crate) use functions::Functions;
#[cfg(test)]
pub(crate) use graph::Start;
pub(crate) use graph::{Block, BlockId, Cfg, End, TableId, Target};
pub(crate) use loops::{Loop, LoopForest};
pub(crate) use regions::Regions;
pub(crate) use targets::addresses_taken;
