//! Threads and units: indexes that handlers use, and what one unit sees of another.

#[path = "../common/mod.rs"]
mod common;
mod slots;
