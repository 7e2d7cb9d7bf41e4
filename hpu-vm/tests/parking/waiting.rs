//! A device that has tasks wait, and tasks of another slot that run meanwhile.

use std::task::Poll;

use hpu_vm::jit::{Executor, Limits, Options, Slot, Source, Task, Translation};
use hpu_vm::{Code, Device, Exit, Hart, NoDevice, Op, Reg, Trap, View};
use spin_abi::command::{Command, Status};
use spin_abi::fault::Cause;
use spin_abi::map::RETURN_ADDRESS;

use crate::assembly::{A2, Assembly};
use crate::device::Recorder;
use crate::engine::{HART_ID, Outcome};
use crate::guest::{FOREIGN, Guest, task, translate};
use crate::program::Program;
use crate::random::Random;
use crate::regions::divided;
use crate::space::map;

/// Maximum number of consecutive waits that the device requests of a task.
const TIMES: u32 = 3;

/// A recorder whose commands are waited for now and then.
pub struct Waiting {
    pub recorder: Recorder,
    random: Random,
    /// How often the next that waits is told to, once it is decided.
    left: Option<u32>,
}

impl Waiting {
    fn new(seed: u64) -> Self {
        Self { recorder: Recorder::default(), random: Random::new(seed), left: None }
    }

    fn is_pending(&mut self) -> bool {
        let random = &mut self.random;
        let left = self.left.get_or_insert_with(|| if random.one_in(3) { 0 } else { 1 + random.below(TIMES) });
        match left.checked_sub(1) {
            None => {
                self.left = None;
                false
            }
            Some(less) => {
                *left = less;
                true
            }
        }
    }
}

impl Device for Waiting {
    fn load(&mut self, view: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        self.recorder.load(view, address, width)
    }

    fn store(&mut self, view: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        self.recorder.store(view, address, width, value)
    }

    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        self.recorder.issue(view, command)
    }

    fn wait(&mut self, view: &mut View<'_>, handle: u32) -> Poll<Result<(), Trap>> {
        if self.is_pending() { Poll::Pending } else { self.recorder.wait(view, handle) }
    }

    fn take_charge(&mut self) -> u64 {
        self.recorder.take_charge()
    }

    fn ecall(&mut self, hart: &mut Hart, view: &mut View<'_>) -> Result<(), Trap> {
        self.recorder.ecall(hart, view)
    }
}

/// A parked task.
#[derive(Clone, Copy, Debug)]
pub struct Park {
    pc: u32,
    retired: u64,
    /// If they are kept.
    x: Option<[u32; 32]>,
}

impl Park {
    /// Whether all that both know is the same.
    pub fn agrees(&self, other: &Self) -> bool {
        let registers = self.x.is_none() || other.x.is_none() || self.x == other.x;
        (self.pc, self.retired) == (other.pc, other.retired) && registers
    }
}

/// A run, and where it was parked.
pub struct Parks {
    pub outcome: Outcome,
    pub parks: Vec<Park>,
}

/// Runs programs whose device lets them wait.
pub struct Parker {
    executor: &'static Executor,
    options: Option<Options>,
    other: Other,
}

/// A task of another slot that counts in its memory.
struct Other {
    code: Code,
    translation: Translation,
    guest: Guest,
    runs: u32,
}

impl Other {
    fn new() -> Self {
        let program = Assembly::new().li(A2, FOREIGN.data).imm(Op::Lw, Reg::A1, A2, 0);
        let program = program.imm(Op::Addi, Reg::A1, Reg::A1, 1).store(Op::Sw, Reg::A1, A2, 0).ret();
        let code = program.code();
        let translation = translate(&code, &[], Options::default());
        let guest = Guest::new(FOREIGN, &code, 0);
        Self { code, translation, guest, runs: 0 }
    }

    /// Runs it by turns in translation and by the interpreter.
    fn run(&mut self, executor: &Executor) {
        let translation = self.runs.is_multiple_of(2).then_some(&self.translation);
        let task = task(FOREIGN, &self.code, translation);
        self.runs += 1;
        assert_eq!(executor.run(&mut self.guest.slot, &mut [], &task, &mut NoDevice), Exit::Returned);
        assert_eq!(self.guest.word(FOREIGN.data), self.runs);
    }
}

thread_local! {
    // A thread has one; it stays as long.
    static EXECUTOR: &'static Executor = Box::leak(Box::new(Executor::new().expect("a timer")));
}

impl Parker {
    /// The interpreter, or translations with `options`.
    pub fn new(options: Option<Options>) -> Self {
        Self { executor: EXECUTOR.with(|executor| *executor), options, other: Other::new() }
    }

    /// Runs a program to its end.
    pub fn run(&mut self, program: &Program) -> Parks {
        let start = program.start;
        let options = self.options.map(|options| Options { checks: program.checks, ..options });
        let taken = program.image.addresses_taken();
        let code = divided(program.image.code().clone(), program.seed);
        let source = Source { code: &code, entries: &[start.entry], taken: &taken };
        let translation = options.map(|options| Translation::new(source, options).expect("a translation"));
        let (space, mut kept) = map(program).unwrap_or_else(|error| panic!("seed {}: {error}", program.seed));
        let (mut slot, mut device) = (Slot::new(HART_ID, space), Waiting::new(program.seed));
        let task = Task {
            code: &code,
            translation: translation.as_ref(),
            entry: start.entry,
            sp: start.sp,
            argument: start.argument,
            tp: 0,
            limits: Limits { time: None, instructions: Some(start.limit) },
            may_park: false,
            host: None,
        };
        let whole = options.is_none_or(|options| options.observe);
        let mut parks = Vec::new();
        let mut exit = self.executor.run(&mut slot, &mut kept.frame, &task, &mut device);
        while exit == Exit::Parked && parks.len() < 100_000 {
            let hart = slot.hart();
            parks.push(Park { pc: hart.pc, retired: hart.retired(), x: whole.then_some(hart.x) });
            self.other.run(self.executor);
            exit = self.executor.resume(&mut slot, &mut kept.frame, &task, &mut device);
        }
        let pc = match exit {
            Exit::Fault(fault) => fault.pc,
            Exit::Returned => RETURN_ADDRESS,
            _ => slot.hart().pc,
        };
        let state = whole.then(|| (pc, slot.hart().x));
        let keeps = options.is_none_or(|options| options.result);
        let result = (keeps && exit == Exit::Returned).then(|| slot.result());
        let retired = options.is_none().then(|| slot.hart().retired());
        Parks {
            outcome: Outcome { exit, state, result, retired, blocks: kept.blocks(program), log: device.recorder.log },
            parks,
        }
    }
}
