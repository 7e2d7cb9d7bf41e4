//! The hook process: it loads handlers as programs of the kernel's XDP hook, and makes their maps. It runs only if the kernel tier is on.
//!
//! Loading needs privileges that the loader process does not have, and verification takes up to about a second, for which the loader
//! process must not block. The hook process translates images itself: spind, which parses requests, cannot have other instructions loaded.
//!
//! * [`message`]: the messages.
//! * `maps`: maps, by their tokens.
//! * `layout_check`: checks that a handler's memory lies in its maps.
//! * `load`: translation, and attempts to load.
//! * [`serve`]: the hook process.
//! * [`client`]: starting it, and asking it.
//! * [`programs`]: programs of contexts.

pub mod client;
mod layout_check;
mod load;
mod maps;
pub mod message;
pub mod programs;
pub mod serve;

pub(crate) use layout_check::MAX_ADDRESSES;

/// First argument of spind that makes it the hook process. Its standard input is a socket to spind.
pub const ARGUMENT: &str = "hook-process";
