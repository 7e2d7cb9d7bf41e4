//! Prepares a context on threads that serve no packets: checks, memory and translation.
//!
//! * `abi_check`: the ABI that an image was built for.
//! * `eligible`: requests whose handlers may run in the kernel's XDP hook.
//! * `in_hook`: puts them there.
//! * `prepare`: makes a [`Prepared`](crate::install::Prepared) from an application's request.
//! * `tier`: which tier is wanted and allowed.

mod abi_check;
mod eligible;
mod in_hook;
mod prepare;
mod tier;

pub use prepare::{at_most, granted_match};
