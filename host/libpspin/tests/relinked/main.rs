//! C programs shaped like drivers of PsPIN's simulation, using only names from the headers. They are compiled, linked
//! with the library, and run with handlers built by `spin-cc --abi pspin`.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a test")]

mod arguments;
mod build;
mod driver;
mod generic;
mod handlers;
mod headers;
