//! Threads and units: indexes that handlers use, and packets that arrive at other units than their context's.

#[path = "../common/mod.rs"]
mod common;
mod group;
mod hand_over;
mod slots;
#[path = "../common/threads.rs"]
mod threads;
mod waiting;
