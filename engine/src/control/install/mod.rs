//! Prepares a context on threads that serve no packets: checks, memory and translation.
//!
//! * `abi_check`: the ABI that an image was built for.
//! * `prepare`: makes a [`Prepared`](crate::install::Prepared) from an application's request.

mod abi_check;
mod prepare;

pub use prepare::{at_most, granted_match};
