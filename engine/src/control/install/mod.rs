//! Prepares a context on threads that serve no packets: checks, memory and translation.
//!
//! * `abi_check`: the ABI that an image was built for.
//! * `eligible`: requests whose handlers may run in the kernel's XDP hook.
//! * `in_hook`: puts them there.
//! * `limits`: what a request asks for, within what the daemon allows.
//! * `memory`: memory of a context, on its user's bill.
//! * `prepare`: makes a [`Prepared`](crate::install::Prepared) from an application's request.
//! * `tier`: which tier is wanted and allowed.
//! * `units`: the units that run a context.

mod abi_check;
mod eligible;
mod in_hook;
mod limits;
mod memory;
mod prepare;
mod tier;
mod units;

pub use limits::at_most;
pub use prepare::granted_match;
