//! C programs of the shape that drivers for PsPIN's simulation have, by the headers' names alone: compiled, linked with the library,
//! and run with handlers that `spin-cc --abi pspin` built.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a test")]

mod arguments;
mod build;
mod driver;
mod generic;
mod handlers;
mod headers;
