//! FPsPIN's host library, for C programs written for it: see `include/fpspin/fpspin.h` and `README.md`.
//!
//! * [`layout`]: structures and constants shared with C programs.
//! * [`rules`]: conversion of rulesets to spind's rules.
//! * [`image`]: symbols that the host side looks up in a handler image.
//! * [`session`]: a connection to spind and the context installed over it.
//! * [`slmp`]: the sending side of SLMP.
//! * [`dump`]: hex dumps.
//! * `ffi`: the functions that C programs call; only this module dereferences their pointers.
#![deny(unsafe_code)]

pub mod dump;
mod ffi;
pub mod image;
pub mod layout;
pub mod rules;
pub mod session;
pub mod slmp;
