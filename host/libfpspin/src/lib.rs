//! FPsPIN's host library, for C programs that were written for it: see `include/fpspin/fpspin.h` and `README.md`.
//!
//! * [`layout`]: structures and constants that C programs share with this.
//! * [`rules`]: rulesets as spind's rules.
//! * [`image`]: what the host side looks up in a handler image.
//! * [`session`]: a connection to spind and the context that is installed over it.
//! * [`slmp`]: the sending side of SLMP.
//! * [`dump`]: bytes as lines of text.
//! * `ffi`: the functions that C programs call; the only place where their pointers are followed.
#![deny(unsafe_code)]

pub mod dump;
mod ffi;
pub mod image;
pub mod layout;
pub mod rules;
pub mod session;
pub mod slmp;
