//! Translates any bytes as code, with any options, and runs them for a while: they end as in the interpreter.
//!
//! The first byte of an input chooses the options.
#![no_main]

#[path = "../../tests/support/guest.rs"]
mod guest;
#[path = "../../tests/support/regions.rs"]
mod regions;
#[path = "../../tests/support/hostile.rs"]
mod hostile;

use hpu_vm::jit::Executor;
use libfuzzer_sys::fuzz_target;

/// Bytes of code that are translated at the most: larger images are no more than slower.
const MOST: usize = 4096;

thread_local! {
    static EXECUTOR: Executor = Executor::new().expect("a timer");
}

fuzz_target!(|input: &[u8]| {
    let Some((first, code)) = input.split_first() else { return };
    let code = &code[..code.len().min(MOST)];
    let checked = EXECUTOR.with(|executor| hostile::check(executor, hostile::options(*first), code));
    checked.unwrap_or_else(|text| panic!("{text}"));
});
