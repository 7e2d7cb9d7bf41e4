//! Receives an input as the bytes that a client sends over the control socket: preambles, documents, payloads. What is received is
//! what the protocol says. `-malloc_limit_mb=1` shows that no announced length takes memory.
#![no_main]

#[path = "../../tests/conversation/judge.rs"]
mod judge;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    judge::check(input);
});
