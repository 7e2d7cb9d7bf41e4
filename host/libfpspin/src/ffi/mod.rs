//! The functions that C programs call.
//!
//! Only this module dereferences pointers of programs. No function unwinds. A null pointer or a bad value is refused
//! with a line on standard error. A pointer that is not null must point to what the header says; `SAFETY` comments
//! refer to this as guaranteed by the caller.
//!
//! * [`context`]: contexts and rulesets; [`slmp`]: sending SLMP messages; [`hexdump`].
//! * `call`: code shared by these modules.
#![allow(unsafe_code, reason = "the boundary to C")]

mod call;
pub mod context;
pub mod hexdump;
pub mod slmp;
