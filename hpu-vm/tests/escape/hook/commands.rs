//! Commands with hostile addresses and lengths: each one is made as it is described, or left to user space.

use hpu_vm::bpf::layout::{Outcome, Reason, Record};
use hpu_vm::bpf::queue;
use hpu_vm::{Checks, Op, Reg};
use spin_abi::fault::Cause;
use spin_abi::map::{DRIVER_BASE, PAGE};
use spin_abi::regs::{COMMAND_INFO, COMMAND_ISSUE, COMMAND_WORD_COUNT, COMMAND_WORDS, INFO_DMA, INFO_SEND, TASK_FIRST};

use super::check::{miscounted, record, trespass_but};
use super::memory::{HOST_BASE, HOST_LEN, Memory};
use super::{FORMS, Form, Row, Run, Runner, translate};
use crate::assembly::{A2, A3, A4, Assembly, Known};
use crate::attack::{Attack, Ends, FILL};
use crate::guest::{CODE, DATA_LEN, FOREIGN, MACHINE, OWN, PACKET};

/// Type of a write of a few bytes to the host.
const INFO_HOST_DIRECT: u32 = 4;
/// Type of a copy whose end the application is told.
const INFO_DMA_EVENT: u32 = INFO_DMA | 1;
const TO_HOST: u32 = 1;
const FROM_HOST: u32 = 0;

/// Words of a command, and its type.
const WORDS: usize = COMMAND_WORD_COUNT + 1;

/// What becomes of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The frame is sent with this length.
    Sent(u32),
    /// The frame is sent with this length, although the handler ends with a fault.
    SentThenFault(u32, Cause),
    /// These words and these bytes of a copy are in the queue.
    Queued([u32; WORDS], Vec<u8>),
    /// User space begins again with the packet.
    Left,
    /// An earlier command was made already, so that the packet is discarded.
    Lost,
    /// The handler is not translated.
    NotEligible,
}

/// A handler with commands.
pub struct Commands {
    attack: Attack,
    made: Made,
}

/// Words of a command by their index, and its type.
struct Words<'w> {
    words: &'w [(u32, u32)],
    info: u32,
}

impl Words<'_> {
    /// All words, and the type.
    fn all(&self) -> [u32; WORDS] {
        let mut all = [0; WORDS];
        for &(word, value) in self.words.iter().chain([&(COMMAND_WORD_COUNT as u32, self.info)]) {
            all[word as usize] = value;
        }
        all
    }
}

/// Words that the translator cannot know, but for lengths of copies and types.
fn issue(mut program: Assembly, command: &Words<'_>, known: Known) -> Assembly {
    let has_length = |word: u32| match command.info {
        INFO_HOST_DIRECT => word == 2,
        INFO_SEND => false,
        _ => word >= 3,
    };
    for &(word, value) in command.words {
        let known = if has_length(word) { Known::Constant } else { known };
        program = program.address(A3, value, known).store(Op::Sw, A3, A2, (COMMAND_WORDS + 4 * word).cast_signed());
    }
    let program = program.li(A3, command.info).store(Op::Sw, A3, A2, COMMAND_INFO.cast_signed());
    program.imm(Op::Lw, A4, A2, COMMAND_ISSUE.cast_signed())
}

fn driver() -> Assembly {
    Assembly::new().li(A2, DRIVER_BASE)
}

/// All of them.
pub fn all() -> Vec<Commands> {
    let mut all = Vec::new();
    for known in Known::ALL {
        sends(known, &mut all);
        immediates(known, &mut all);
        copies(known, &mut all);
    }
    sequences(&mut all);
    all
}

fn push(all: &mut Vec<Commands>, name: String, program: Assembly, made: Made) {
    all.push(Commands { attack: Attack::new(name, program.ret(), Ends::Done), made });
}

fn sends(known: Known, all: &mut Vec<Commands>) {
    let frame = OWN.l2_packet();
    let lengths = [0, 1, 13, 14, 60, PACKET - 1, PACKET, PACKET + 1, PAGE, 1 << 16, 1 << 31, u32::MAX];
    let whole = lengths.map(|len| (frame, len, 0, 0));
    let others = [
        frame + 1,
        frame - 1,
        frame + PACKET,
        MACHINE.l1_packet_base(OWN.cluster, OWN.hpu),
        FOREIGN.l2_packet(),
        FOREIGN.data,
        OWN.data,
        CODE,
        OWN.stack_end() - 64,
        0,
        u32::MAX,
        0x8000_0000,
    ];
    let others = others.map(|source| (source, 64, 0, 0));
    // Queue pairs, and host memory as the source.
    let elsewhere = [(frame, 64, 1, 0), (frame, 64, u32::MAX, 0), (frame, 64, 0, 1), (0x1000, 64, 0, 1)];
    for (source, len, pair, high) in whole.into_iter().chain(others).chain(elsewhere) {
        let command = Words { words: &[(0, 0), (1, pair), (2, source), (3, high), (4, len)], info: INFO_SEND };
        let is_frame = source == frame && pair == 0 && high == 0 && (14..=PACKET).contains(&len);
        let made = if is_frame { Made::Sent(len) } else { Made::Left };
        let name = format!("send {known:?} of {len:#x} at {high:#x}:{source:#x} to {pair:#x}");
        push(all, name, issue(driver(), &command, known), made);
    }
}

/// Host addresses at the edges for `len` bytes. User space looks where they lie.
fn hosts(len: u32) -> Vec<u64> {
    let last = HOST_LEN - len;
    let outside = [
        HOST_BASE - 1,
        HOST_BASE + u64::from(last) + 1,
        HOST_BASE + u64::from(HOST_LEN),
        HOST_BASE + (1 << 32),
        HOST_BASE - (1 << 32),
        HOST_BASE | 1 << 63,
        0,
        1 << 63,
        u64::MAX,
        0_u64.wrapping_sub(len.into()),
    ];
    let inside = [0, 1, last].map(|offset| HOST_BASE + u64::from(offset));
    inside.into_iter().chain(outside).collect()
}

fn halves(address: u64) -> [u32; 2] {
    [address, address >> 32].map(|word| u32::try_from(word & 0xffff_ffff).expect("masked"))
}

/// Writes of the words to host memory.
fn immediates(known: Known, all: &mut Vec<Commands>) {
    let mut add = |address: u64, size: u32, is_made: bool| {
        let [low, high] = halves(address);
        let data = (0..8).map(|word| (3 + word, 0x0102_0304 * (word + 1)));
        let words: Vec<(u32, u32)> = [(0, low), (1, high), (2, size)].into_iter().chain(data).collect();
        let command = Words { words: &words, info: INFO_HOST_DIRECT };
        let made = if is_made { Made::Queued(command.all(), Vec::new()) } else { Made::NotEligible };
        let name = format!("immediate {known:?} of {size:#x} to {address:#x}");
        push(all, name, issue(driver(), &command, known), made);
    };
    for len in [1, 2, 7, 31, 32] {
        hosts(len).into_iter().for_each(|address| add(address, len << 1 | TO_HOST, true));
    }
    for size in [TO_HOST, 33 << 1 | TO_HOST, 0x7fff_ffff << 1 | TO_HOST, 8 << 1 | FROM_HOST] {
        add(HOST_BASE, size, false);
    }
}

/// What becomes of a copy.
enum Copied {
    Queued,
    Left,
    NotEligible,
}

/// Copies to host memory.
fn copies(known: Known, all: &mut Vec<Commands>) {
    let mut add = |source: u32, address: u64, len: u32, (direction, info): (u32, u32), made: Copied| {
        let [low, high] = halves(address);
        let words = [(0, low), (1, high), (2, source), (3, len), (4, direction)];
        let made = match made {
            Copied::Queued => Made::Queued(Words { words: &words, info }.all(), vec![FILL; len as usize]),
            Copied::Left => Made::Left,
            Copied::NotEligible => Made::NotEligible,
        };
        let name = format!("copy {known:?} of {len:#x} from {source:#x} to {address:#x}, {direction}, {info}");
        push(all, name, issue(driver(), &Words { words: &words, info }, known), made);
    };
    let plain = (TO_HOST, INFO_DMA);
    for len in [1, 3, 64, 128] {
        for address in hosts(len) {
            for info in [INFO_DMA, INFO_DMA_EVENT] {
                add(OWN.data, address, len, (TO_HOST, info), Copied::Queued);
            }
        }
        let windows = [OWN.data + DATA_LEN, OWN.l2_packet() + PACKET];
        for end in windows {
            add(end - len, HOST_BASE, len, plain, Copied::Queued);
            add(end - len + 1, HOST_BASE, len, plain, Copied::Left);
            add(end, HOST_BASE, len, plain, Copied::Left);
        }
        let outside = [
            FOREIGN.data,
            FOREIGN.handler_mem,
            FOREIGN.l2_packet(),
            MACHINE.scratchpad_base(FOREIGN.cluster),
            FOREIGN.stack_end() - 256,
            OWN.stack_end(),
            OWN.data - 1,
            CODE - 1,
            DRIVER_BASE + TASK_FIRST,
            DRIVER_BASE,
            0,
            0x8000_0000,
            u32::MAX,
            0_u32.wrapping_sub(len),
        ];
        for source in outside {
            add(source, HOST_BASE, len, plain, Copied::Left);
        }
    }
    for len in [0, 129, PAGE, 1 << 31, u32::MAX] {
        add(OWN.data, HOST_BASE, len, plain, Copied::NotEligible);
    }
    add(OWN.data, HOST_BASE, 64, (FROM_HOST, INFO_DMA), Copied::NotEligible);
    // User space refuses what is no command.
    add(OWN.data, HOST_BASE, 64, (TO_HOST, 6), Copied::NotEligible);
}

/// Several commands, and commands before a fault.
fn sequences(all: &mut Vec<Commands>) {
    let send = Words { words: &[(0, 0), (1, 0), (2, OWN.l2_packet()), (3, 0), (4, 64)], info: INFO_SEND };
    let once = || issue(driver(), &send, Known::Constant);
    push(all, "a send, twice".to_owned(), issue(once(), &send, Known::Constant), Made::Lost);
    let faults = once().imm(Op::Lw, A3, Reg::ZERO, 8);
    push(all, "a send, then a load at 8".to_owned(), faults, Made::SentThenFault(64, Cause::LoadAccess));
    let stores = once().li(A3, FOREIGN.data).store(Op::Sw, A3, A3, 0);
    let name = "a send, then a store to another's data".to_owned();
    push(all, name, stores, Made::SentThenFault(64, Cause::StoreAccess));
    let spins = once();
    let top = spins.pc();
    let spins = spins.jal(Reg::ZERO, top);
    push(all, "a send, then a loop".to_owned(), spins, Made::SentThenFault(64, Cause::Watchdog));
    // Words that nobody has stored are zero: a copy of nothing from the host.
    let none = driver().imm(Op::Lw, A4, A2, COMMAND_ISSUE.cast_signed());
    push(all, "a command without words".to_owned(), none, Made::Left);
    let unknown = driver().address(A3, INFO_HOST_DIRECT, Known::Loaded);
    let unknown =
        unknown.store(Op::Sw, A3, A2, COMMAND_INFO.cast_signed()).imm(Op::Lw, A4, A2, COMMAND_ISSUE.cast_signed());
    push(all, "a command of an unknown type".to_owned(), unknown, Made::Left);
}

/// The forms with exact checks. Copies are always checked exactly in user space.
pub fn forms() -> impl Iterator<Item = Form> {
    FORMS.into_iter().filter(|form| form.checks == Checks::Exact)
}

/// Makes an attempt in one form.
pub fn attempt(runner: &mut impl Runner, commands: &Commands, form: Form) -> Row {
    let Commands { attack, made } = commands;
    let (program, before) = translate(attack, form, runner.processors());
    let row = |outcome: String, complaint: Option<String>| {
        let complaint = complaint.map(|complaint| format!("{}, {}: {complaint}", attack.name, form.name));
        Row { name: attack.name.clone(), form: form.name, outcome, complaints: complaint.into_iter().collect() }
    };
    let other = |outcome: &str| Some(format!("expected {made:?}, not this: {outcome}"));
    let program = match program {
        Ok(program) => program,
        Err(reason) => {
            let outcome = format!("not eligible: {reason}");
            let is_expected = *made == Made::NotEligible && outcome.contains("a command other than");
            let complaint = other(&outcome).filter(|_| !is_expected);
            return row(outcome, complaint);
        }
    };
    let mut after = before.clone();
    let action = match runner.run(&program, &mut after) {
        Ok(action) => action,
        Err(reason) => return row(format!("refused: {reason}"), other("the verifier refused it")),
    };
    let Some((processor, record)) = record(&after) else { return row(String::new(), other("no record")) };
    let run = Run { attack, program: &program, form, before, after, action };
    let (outcome, actual) = result(&record);
    let is_expected = match made {
        // Which bytes they are is looked at below.
        Made::Queued(..) => actual.is_none() && record.outcome == Outcome::Returned,
        made => actual.as_ref() == Some(made),
    };
    let complaint = other(&outcome).filter(|_| !is_expected);
    let complaint = complaint.or_else(|| effects(&run, processor, made));
    let complaint = complaint.or_else(|| trespass_but(&run, processor, &allowed(&run, processor, made)));
    row(outcome, complaint.or_else(|| miscounted(&run, processor, &record)))
}

/// The outcome of a record. `None` for a handler that returned without a send.
fn result(record: &Record) -> (String, Option<Made>) {
    match record.outcome {
        Outcome::Left(Reason::Command) if record.address == 0 => ("left".to_owned(), Some(Made::Left)),
        Outcome::Left(Reason::Command) => ("lost".to_owned(), Some(Made::Lost)),
        Outcome::Returned if record.sent != 0 => (format!("sent {}", record.sent), Some(Made::Sent(record.sent))),
        Outcome::Returned => ("returned".to_owned(), None),
        Outcome::Faulted(code) => {
            let cause = Cause::ALL.into_iter().find(|cause| cause.code() == code).expect("a cause");
            (format!("sent {}, then {cause:?}", record.sent), Some(Made::SentThenFault(record.sent, cause)))
        }
        other => (format!("{other:?}"), None),
    }
}

/// The memory before, with what the command may change.
fn allowed(run: &Run<'_>, processor: u32, made: &Made) -> Memory {
    let mut memory = run.before.clone();
    match made {
        Made::Sent(len) | Made::SentThenFault(len, _) => memory.frame.truncate(*len as usize),
        Made::Queued(words, bytes) => {
            let part = &mut memory.queue[(processor * queue::PART) as usize..];
            part[queue::WRITTEN as usize] = 1;
            let entry = &mut part[queue::FIRST as usize..];
            for (at, word) in entry.chunks_exact_mut(4).zip(words) {
                at.copy_from_slice(&word.to_ne_bytes());
            }
            entry[queue::DATA as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        _ => {}
    }
    memory
}

/// Effects that are missing, or that should not be.
fn effects(run: &Run<'_>, processor: u32, made: &Made) -> Option<String> {
    let expected = allowed(run, processor, made);
    let same = run.after.frame == expected.frame && run.after.maps().eq(expected.maps());
    (!same).then(|| "frame or maps are not as the command says".to_owned())
}
