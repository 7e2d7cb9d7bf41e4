//! Random frames and rules, for property tests of everything that evaluates the same tests.
//!
//! Addresses, ports and the like are drawn from small pools that frames and rules share, so that rules hold about as
//! often as they do not.

mod frames;
mod pools;
mod rules;
mod targets;

pub use frames::{Built, frames, honest_frames, plain_frames};
pub use rules::{keys, rules, terms};
pub use targets::{addressed_frames, overlapping_entries, targets};
