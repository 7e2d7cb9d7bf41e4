//! Preparing a context: checks, memory and translation, on threads that serve no packets.
//!
//! * `abi_check`: which handlers an image was built for.
//! * `prepare`: makes a [`Prepared`](crate::install::Prepared) of what an application asks for.

mod abi_check;
mod prepare;
