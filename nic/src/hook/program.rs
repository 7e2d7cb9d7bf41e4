//! Programs in the kernel.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::name::{NAME_RULE, is_name};
use super::sys::{self, Loading, LogLevel};
use super::verifier_log::{error_lines, normalise, processed};
use crate::bpf::log_messages;
use crate::error::NicError;

/// Holds errors and statistics, which are a few lines.
const BRIEF_LOG: usize = 64 << 10;
/// Holds the end of the path to an error.
const FULL_LOG: usize = 1 << 20;
/// Shortest frame that the kernel runs a program on (`ETH_HLEN`).
const MIN_FRAME: usize = 14;
/// A page of 4096 B without headroom (256 B) and `struct skb_shared_info` (320 B). The kernel accepts longer frames, but
/// splits them: the program would see the first 3520 B alone.
const MAX_FRAME: usize = 3520;
/// A frame can grow up to the end of its page.
const ROOM: usize = 4096;

/// Codes of instructions that name something outside of the program, and the kinds of names (include/uapi/linux/bpf.h).
const LOAD_DOUBLE: u8 = 0x18;
const CALL: u8 = 0x85;
const CALL_KERNEL: u8 = 2;
const MAP_FD: u8 = 1;
const MAP_FD_VALUE: u8 = 2;
const MAP_INDEX: u8 = 5;
const MAP_INDEX_VALUE: u8 = 6;

/// How a program is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'a> {
    /// Its name: 1 to 15 letters, digits, underscores or dots.
    pub name: &'a str,
    /// Loads a refused program again to get the verifier's log of the path to the error, up to 1 MiB of its end.
    pub full_log: bool,
}

/// The reason why a program was not loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The process lacks privileges.
    #[error(
        "no permission to load an XDP program; run as root or with the capabilities CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    Privileges,
    /// The program was not given to the kernel: its name, or an instruction that names a map, is not valid.
    #[error("the program is malformed: {0}")]
    Malformed(String),
    /// The verifier refused the program.
    #[error("the kernel refused program {}: {} (errno {})", .0.name, .0.message, .0.errno)]
    Refused(Box<Refusal>),
}

/// The verifier's answer on a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The program's name.
    pub name: String,
    /// The error number.
    pub errno: i32,
    /// [`Self::message`] with `N` for each number, to count refusals by reason.
    pub reason: String,
    /// The last one or two lines of the verifier's error, or the meaning of the error number.
    pub message: String,
    /// Number of instructions that the verifier processed; `None` when it did not begin.
    pub processed: Option<u32>,
    /// The end of the full log, if requested.
    pub log: Option<String>,
}

/// A program in the kernel. Dropping it closes the descriptor; the program stays where it is attached.
#[derive(Debug)]
pub struct Program {
    descriptor: OwnedFd,
    load_time: Duration,
    processed: Option<u32>,
}

/// The kernel's description of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Its id.
    pub id: u32,
    /// Number of instructions that the verifier processed. 0 before Linux 5.16.
    pub verified_instructions: u32,
    /// Bytes of machine code. 0 if the kernel interprets the program (net.core.bpf_jit_enable is 0).
    pub machine_code_bytes: u32,
    /// Number of instructions after the verifier's changes.
    pub instructions: u32,
}

/// The result of a test run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The program's result, `XDP_*`.
    pub action: u32,
    /// The frame that the last run left. Each run begins with the frame of the previous one.
    pub frame: Vec<u8>,
    /// The average time of a run.
    pub duration: Duration,
}

impl Program {
    /// Loads an XDP program. `instructions` are `struct bpf_insn` in the machine's byte order; they name maps by their
    /// index in `maps`. The program keeps the maps that it uses.
    ///
    /// # Errors
    /// [`LoadError`]: no privileges, a malformed program, or the verifier's refusal.
    pub fn load(
        instructions: &[[u8; 8]],
        maps: &[BorrowedFd<'_>],
        options: LoadOptions<'_>,
    ) -> Result<Self, LoadError> {
        let name = check_name(options.name)?;
        check_references(instructions, maps.len())?;
        log_messages();
        let maps: Vec<RawFd> = maps.iter().map(AsRawFd::as_raw_fd).collect();
        let load = |level, size| sys::load(&name, instructions, &maps, level, size);
        let begin = Instant::now();
        let Loading { mut result, log } = load(LogLevel::Statistics, BRIEF_LOG);
        if matches!(result, Err(libc::ENOSPC)) {
            // The log was too long, which hides the verifier's decision.
            result = load(LogLevel::Off, 0).result;
        }
        let (load_time, processed) = (begin.elapsed(), processed(&log));
        let errno = match result {
            Ok(descriptor) => return Ok(Self { descriptor, load_time, processed }),
            Err(errno) => errno,
        };
        let mut message = error_lines(&log);
        if message.is_empty() && errno == libc::EPERM {
            return Err(LoadError::Privileges);
        }
        if message.is_empty() {
            message = io::Error::from_raw_os_error(errno).to_string();
        }
        let log = options.full_log.then(|| load(LogLevel::Path, FULL_LOG).log);
        let (name, reason) = (options.name.to_owned(), normalise(&message));
        Err(LoadError::Refused(Box::new(Refusal { name, errno, reason, message, processed, log })))
    }

    /// A program that another process has loaded. Its load time is zero, and how many instructions the verifier processed
    /// is only in its [description](Self::info).
    #[must_use]
    pub const fn from_fd(descriptor: OwnedFd) -> Self {
        Self { descriptor, load_time: Duration::ZERO, processed: None }
    }

    /// How long the kernel took to load it.
    #[must_use]
    pub const fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Number of instructions that the verifier processed, from its log.
    #[must_use]
    pub const fn processed(&self) -> Option<u32> {
        self.processed
    }

    /// The kernel's description.
    ///
    /// # Errors
    /// The kernel refuses to give it.
    pub fn info(&self) -> Result<ProgramInfo, NicError> {
        let info = sys::info(self.as_fd()).map_err(|error| NicError::system("describe a program", error))?;
        Ok(ProgramInfo {
            id: info.id,
            verified_instructions: info.verified_insns,
            machine_code_bytes: info.jited_prog_len,
            instructions: info.xlated_prog_len / 8,
        })
    }

    /// Runs it `repeat` times on a frame, without an interface. Its maps keep what it writes.
    ///
    /// # Errors
    /// [`NicError::Config`] for a frame that is not 14 to 3520 B long, and for 0 runs or above 2³¹ − 1. A run ends with
    /// an error when a signal arrives.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> Result<TestRun, NicError> {
        if !(MIN_FRAME..=MAX_FRAME).contains(&frame.len()) {
            let value = format!("{} B", frame.len());
            return Err(NicError::Config { what: "the frame of a test run", value, must: "give 14 to 3520 B" });
        }
        if repeat == 0 || repeat > i32::MAX.cast_unsigned() {
            let value = repeat.to_string();
            return Err(NicError::Config { what: "the number of test runs", value, must: "give 1 to 2147483647" });
        }
        let mut output = vec![0; frame.len() + ROOM];
        let result = sys::test_run(self.as_fd(), frame, &mut output, repeat);
        let (action, len, nanoseconds) = result.map_err(|error| NicError::system("run a program on a frame", error))?;
        output.truncate(len);
        Ok(TestRun { action, frame: output, duration: Duration::from_nanos(nanoseconds.into()) })
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn check_name(name: &str) -> Result<CString, LoadError> {
    let name = if is_name(name) { CString::new(name).ok() } else { None };
    name.ok_or_else(|| LoadError::Malformed(format!("its name is not valid: {NAME_RULE}")))
}

/// Checks that instructions name only maps of the list. A descriptor in an instruction could be any of the process, and
/// the kernel would read an index beyond the list from the memory behind it.
fn check_references(instructions: &[[u8; 8]], maps: usize) -> Result<(), LoadError> {
    let mut rest = instructions.iter().enumerate();
    while let Some((at, &[code, registers, off_0, off_1, imm_0, imm_1, imm_2, imm_3])) = rest.next() {
        let source = if cfg!(target_endian = "little") { registers >> 4 } else { registers & 0xf };
        let index = u32::from_ne_bytes([imm_0, imm_1, imm_2, imm_3]);
        match (code, source) {
            (LOAD_DOUBLE, MAP_FD | MAP_FD_VALUE) => {
                return Err(LoadError::Malformed(format!("instruction {at} names a map by descriptor: use its index")));
            }
            (LOAD_DOUBLE, MAP_INDEX | MAP_INDEX_VALUE) if index as usize >= maps => {
                let error = format!("instruction {at} names map {index}, but {maps} were given");
                return Err(LoadError::Malformed(error));
            }
            (CALL, CALL_KERNEL) if [off_0, off_1] != [0; 2] => {
                let error = format!("instruction {at} calls a function of a kernel module: use one of the kernel");
                return Err(LoadError::Malformed(error));
            }
            _ => {}
        }
        if code == LOAD_DOUBLE {
            // The second half of its immediate.
            rest.next();
        }
    }
    Ok(())
}
