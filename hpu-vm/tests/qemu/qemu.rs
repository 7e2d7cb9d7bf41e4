//! Running a file under `qemu-riscv32` and reading the registers it logs before each instruction.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// Seconds after which qemu is taken to hang.
const LIMIT: &str = "60";

/// The vector unit of the HPU. Tail and masked-off elements are undisturbed, which is qemu's default.
const VECTOR_CPU: &str = "rv32,v=true,vlen=128,elen=32,vext_spec=v1.0";

/// State before an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub pc: u32,
    pub x: [u32; 32],
}

/// What qemu did.
pub struct Trace {
    pub states: Vec<State>,
    /// What the program wrote to standard output.
    pub written: Vec<u8>,
}

/// Executes `elf` and returns what it wrote to standard output, or the status it ended with when that is no success.
///
/// # Panics
/// When qemu is missing.
pub fn run(name: &str, elf: &[u8]) -> Result<Vec<u8>, ExitStatus> {
    let output = command(name, elf, &["-cpu", VECTOR_CPU]).output().unwrap();
    if output.status.success() { Ok(output.stdout) } else { Err(output.status) }
}

/// Executes `elf` and traces it.
///
/// # Panics
/// When qemu is missing, fails, or executes more than `at_most` instructions.
pub fn trace(name: &str, elf: &[u8], at_most: usize) -> Trace {
    // `nochain` makes qemu return to its main loop, and log there, after every one-instruction block.
    let mut child = command(name, elf, &["-cpu", "rv32", "-singlestep", "-d", "cpu,nochain"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{name}: timeout (coreutils) does not start: {error}"));
    let states = read_log(BufReader::new(child.stderr.take().unwrap()), at_most);
    let mut written = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut written).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{name}: qemu ended with {status} after {} instructions", states.len());
    assert!(states.len() <= at_most, "{name}: qemu executed more than {at_most} instructions");
    Trace { states, written }
}

/// A command that executes `elf` under qemu with `arguments`.
fn command(name: &str, elf: &[u8], arguments: &[&str]) -> Command {
    assert!(
        Command::new("qemu-riscv32").arg("--version").output().is_ok_and(|output| output.status.success()),
        "qemu-riscv32 does not run; it is in Debian's package qemu-user (apt install qemu-user)"
    );
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.elf", name.replace(' ', "-")));
    let executable = Permissions::from_mode(0o755);
    std::fs::write(&path, elf)
        .and_then(|()| std::fs::set_permissions(&path, executable))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut command = Command::new("timeout");
    command.args([LIMIT, "qemu-riscv32"]).args(arguments).arg(&path).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Reads at most one state more than `at_most`; the pipe that closes then ends qemu.
fn read_log(log: impl BufRead, at_most: usize) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    for line in log.lines().map(|line| line.unwrap()) {
        let mut words = line.split_ascii_whitespace();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            let Ok(value) = u32::from_str_radix(value, 16) else { break };
            if name == "pc" {
                if states.len() > at_most {
                    return states;
                }
                states.push(State { pc: value, ..State::default() });
            } else if let Some(number) = register(name)
                && let Some(state) = states.last_mut()
            {
                state.x[number] = value;
            }
        }
    }
    states
}

/// The number in `x10/a0`.
fn register(name: &str) -> Option<usize> {
    let (number, _) = name.strip_prefix('x')?.split_once('/')?;
    number.parse().ok().filter(|&number| number < 32)
}
