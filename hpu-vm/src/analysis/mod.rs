//! What the translators know about code before they emit any.
//!
//! * [`regs`]: registers and memory that instructions read and write.
//! * [`cfg`]: control-flow graphs of handlers and of code that they share, with calls inlined; loops.
//! * [`dataflow`]: facts about each instruction: constants, pointer classes, liveness, vector types.

pub(crate) mod cfg;
pub(crate) mod dataflow;
pub(crate) mod regs;
