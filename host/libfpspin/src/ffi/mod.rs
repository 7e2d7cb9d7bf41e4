//! The functions that C programs call.
//!
//! Pointers of programs are followed here and nowhere else. A panic does not leave these functions. They refuse a null pointer
//! or a bad value with a line on standard error. A pointer that is not null has to be what the header says: `SAFETY` comments
//! call this the caller's promise.
//!
//! * [`context`]: contexts and rulesets; [`slmp`]: sending SLMP messages; [`hexdump`].
//! * `call`: what they share.
#![allow(unsafe_code, reason = "the boundary to C")]

mod call;
pub mod context;
pub mod hexdump;
pub mod slmp;
