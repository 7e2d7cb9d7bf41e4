//! Any bytes at all as code: translated in any way, and run for a while against the interpreter.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeSet;

use hpu_vm::jit::{Atomics, Executor, Limits, Options, Source, Task, Translation};
use hpu_vm::{Checks, Code, Exit, NoDevice};
use spin_abi::fault::Cause;

use super::guest::{CODE, Guest, OWN, task};
use super::regions::divided;

/// Instructions of a run.
const LIMIT: u64 = 2000;

/// Options from the bits of a byte.
pub fn options(bits: u8) -> Options {
    let bit = |index: u8| bits >> index & 1 != 0;
    Options {
        checks: if bit(0) { Checks::Exact } else { Checks::Page },
        atomics: if bit(1) { Atomics::Home } else { Atomics::Shared },
        counting: true,
        observe: bit(2),
        any_device: bit(3),
        result: bit(4),
        described: false,
    }
}

/// Translates `bytes` with `options` and runs them: they end as in the interpreter, with the same memory.
///
/// # Errors
/// What differs.
pub fn check(executor: &Executor, options: Options, bytes: &[u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Ok(());
    }
    let code = divided(Code::at(CODE, bytes), bytes.iter().copied().map(u64::from).sum());
    // Any word of the code that is an address of it, and the first places.
    let words = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word) & !1);
    let taken: BTreeSet<u32> = words.filter(|&word| code.contains(word)).chain([CODE, CODE + 2]).collect();
    let source = Source { code: &code, entries: &[CODE], taken: &taken };
    let translation = Translation::new(source, options).map_err(|error| error.to_string())?;
    let run = |translation: Option<&Translation>| {
        let mut guest = Guest::new(OWN, &code, 0x11);
        guest.slot.view().set_checks(options.checks);
        let limits = Limits { time: None, instructions: Some(LIMIT) };
        let task = Task { limits, ..task(OWN, &code, translation) };
        let exit = executor.run(&mut guest.slot, &mut guest.frame, &task, &mut NoDevice);
        let result = (options.result && exit == Exit::Returned).then(|| guest.slot.result());
        (exit, (guest.memory(), result))
    };
    let (expected, actual) = (run(None), run(Some(&translation)));
    if !same(expected.0, actual.0) {
        return Err(format!("{:x?}, not {:x?}", actual.0, expected.0));
    }
    if expected.1 != actual.1 && expected.0 == actual.0 { Err("memory or result differs".to_owned()) } else { Ok(()) }
}

/// Whether the outcomes are equal, or differ as permitted: in the address of a fault across the end of a page, or by a
/// device that was taken for memory. Without a device its access is a fault either way.
fn same(expected: Exit, actual: Exit) -> bool {
    let (Exit::Fault(fault), Exit::Fault(other)) = (expected, actual) else { return expected == actual };
    let crosses = fault.cause == other.cause && fault.pc == other.pc && other.address.wrapping_sub(fault.address) < 4;
    let device = other.cause == Cause::DeviceAccess;
    fault == other || crosses || device
}
