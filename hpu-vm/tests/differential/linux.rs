//! Programs that also run under `qemu-riscv32`, to their end: memory and registers are compared there.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use hpu_vm::{Checks, Exit, RegionKind};

use crate::compare::exit_name;
use crate::engine::Engine;
use crate::generate::{self, Shape};

/// Seconds after which qemu is taken to hang.
const LIMIT: &str = "60";

/// Runs the Linux program of `seed` by `engine` and under qemu. Returns whether it was compared: one that runs longer
/// than its limit is not.
///
/// # Errors
/// A report of the difference.
pub fn compare<E: Engine>(engine: &mut E, seed: u64) -> Result<bool, String> {
    let shape =
        Shape { checks: Checks::Exact, counters: false, hostile: false, linux: true, vectors: false, plain: false };
    let program = generate::program(seed, shape);
    let outcome = engine.run(&program);
    match outcome.exit {
        Exit::Finished => {}
        Exit::Fault(fault) if fault.cause.is_limit() => return Ok(false),
        other => return Err(format!("seed {seed}: {} {other:x?}\n{}", exit_name(other), program.disassembly(&[]))),
    }
    let writable = outcome.blocks.iter().filter(|block| block.kind != RegionKind::Code);
    let actual: Vec<(u32, u8)> =
        writable.flat_map(|block| (block.base..).zip(block.bytes[..block.len as usize].iter().copied())).collect();
    let expected = run(seed, &program.elf());
    if expected.len() != actual.len() {
        return Err(format!("seed {seed}: qemu wrote {} bytes, not {}", expected.len(), actual.len()));
    }
    match actual.iter().zip(&expected).find(|((_, byte), other)| byte != *other) {
        None => Ok(true),
        Some(((address, byte), other)) => Err(format!(
            "seed {seed}: {address:#010x} is {byte:#04x}, under qemu {other:#04x}\n{}",
            program.disassembly(&[])
        )),
    }
}

/// What the program writes under qemu.
///
/// # Panics
/// When qemu is missing or fails.
fn run(seed: u64, elf: &[u8]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("differential-{seed}.elf"));
    std::fs::write(&path, elf)
        .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o755)))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let output = Command::new("timeout")
        .args([LIMIT, "qemu-riscv32", "-cpu", "rv32"])
        .arg(&path)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("timeout (coreutils) does not start: {error}"));
    assert!(
        output.status.success(),
        "seed {seed}: qemu-riscv32 (Debian's package qemu-user) ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let _ = std::fs::remove_file(&path);
    output.stdout
}
