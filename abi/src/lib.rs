//! Binary interfaces between spind, its handlers, its applications and its XDP program.
//!
//! Every layout is defined once, here. Tests compare the C headers of the SDK and of the XDP program with it. No code
//! in this crate touches memory that it was not given, so `unsafe` is forbidden.
//!
//! * [`map`]: the 32-bit guest address map of the PsPIN machine and its two presets.
//! * [`regs`]: the HPU driver page (task registers, command issue, doorbell).
//! * [`command`]: the words a handler writes to issue a command, decoded.
//! * [`fault`]: why a handler was ended.
//! * [`verdict`]: the effect of a handler's return value.
//! * [`rules`]: compiled matching rules, evaluated by the XDP program and by the matcher alike.
//! * [`counters`]: one counter per cause, with its name and meaning.
//! * [`counter_values`]: values of counters by name.
//! * [`units`]: sizes in bytes as people write them.
//! * [`handler_names`]: names of handlers, for images that do not declare their handlers.
//! * [`printable`]: text from others, for logs and terminals.
//! * [`control`]: the messages between applications and spind.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod command;
pub mod control;
pub mod counter_values;
pub mod counters;
pub mod events;
pub mod fault;
pub mod handler_names;
pub mod map;
pub mod printable;
pub mod put;
pub mod regs;
pub mod rules;
pub mod unit;
pub mod units;
pub mod verdict;
