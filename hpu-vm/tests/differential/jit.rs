//! Translated code on a [`Space`](hpu_vm::memory::Space), in every way it can be translated.

use hpu_vm::jit::{Atomics, Executor, Limits, Options, Slot, Source, Task, TranslateError, Translation};
use hpu_vm::{Checks, Exit};
use spin_abi::fault::Cause;
use spin_abi::map::RETURN_ADDRESS;

use crate::device::Recorder;
use crate::engine::{Engine, HART_ID, Outcome};
use crate::program::Program;
use crate::regions::divided;
use crate::space::map;

thread_local! {
    static EXECUTOR: Executor = Executor::new().expect("a timer");
}

/// The translator with these options, and the checks that programs ask for.
pub struct Jit {
    options: Options,
    /// Programs that took a device for memory.
    pub surprised: u64,
    /// Programs that were too much to translate.
    pub refused: u64,
}

impl Jit {
    /// Translates with these options.
    pub const fn new(options: Options) -> Self {
        Self { options, surprised: 0, refused: 0 }
    }
}

/// The translator, each program with the next of [`all`] options.
pub struct InTurn(pub Vec<Jit>);

impl Default for InTurn {
    fn default() -> Self {
        Self(all().map(Jit::new).collect())
    }
}

impl InTurn {
    /// Whose turn it is.
    const fn turn(&self, seed: u64) -> usize {
        (seed % self.0.len() as u64) as usize
    }
}

impl Engine for InTurn {
    fn counts(&self, seed: u64) -> bool {
        self.0[self.turn(seed)].counts(seed)
    }

    fn run(&mut self, program: &Program) -> Outcome {
        let turn = self.turn(program.seed);
        self.0[turn].run(program)
    }
}

/// Every way to translate; the one for handlers that only the clock limits, which are most, is there with results and without.
pub fn all() -> impl Iterator<Item = Options> {
    let plain = Options::default();
    let counting = Options { counting: true, ..plain };
    let ways = [
        plain,
        Options { result: true, ..plain },
        Options { any_device: true, ..plain },
        counting,
        Options { observe: true, ..counting },
        Options { any_device: true, ..counting },
        Options { observe: true, any_device: true, ..counting },
    ];
    let atomics = [Atomics::Shared, Atomics::Home].into_iter();
    atomics.flat_map(move |atomics| {
        let result = atomics == Atomics::Home;
        ways.map(|way| Options { atomics, result: way.result || (way.counting && result), ..way })
    })
}

/// Whether a counted translation that ended so has counted all: a signal that ends it does not, and a task that is finished is
/// within an instruction.
fn counts(checks: Checks, exit: Exit) -> bool {
    let by_signal = |cause| match checks {
        Checks::Page => matches!(cause, Cause::LoadAccess | Cause::StoreAccess | Cause::StackOverflow),
        // Bounds do not tell what may be written.
        Checks::Exact => cause == Cause::StoreAccess,
    };
    match exit {
        Exit::Fault(fault) => fault.cause != Cause::DeviceAccess && !by_signal(fault.cause),
        exit => exit == Exit::Returned,
    }
}

impl Engine for Jit {
    fn counts(&self, _: u64) -> bool {
        self.options.counting
    }

    fn run(&mut self, program: &Program) -> Outcome {
        let (start, taken) = (program.start, program.image.addresses_taken());
        // Handlers are, programs for Linux are not.
        let described = start.argument != 0;
        let options = Options { checks: program.checks, described, ..self.options };
        let code = divided(program.image.code().clone(), program.seed);
        let source = Source { code: &code, entries: &[start.entry], taken: &taken };
        let translation = match Translation::new(source, options) {
            Ok(translation) => Some(translation),
            // It is interpreted.
            Err(TranslateError::Code { .. }) => None,
            Err(error) => panic!("seed {}: {error}", program.seed),
        };
        self.refused += u64::from(translation.is_none());
        let (space, mut kept) = map(program).unwrap_or_else(|error| panic!("seed {}: {error}", program.seed));
        let (mut slot, mut recorder) = (Slot::new(HART_ID, space), Recorder::default());
        let task = Task {
            code: &code,
            translation: translation.as_ref(),
            entry: start.entry,
            sp: start.sp,
            argument: start.argument,
            tp: 0,
            limits: Limits { time: None, instructions: options.counting.then_some(start.limit) },
            may_park: false,
            host: None,
        };
        let exit = EXECUTOR.with(|executor| executor.run(&mut slot, &mut kept.frame, &task, &mut recorder));
        if slot.device_touched() && !options.any_device {
            // It is translated again, for any later task: that is what is compared.
            self.surprised += 1;
            let mut again = Self::new(Options { any_device: true, ..options });
            let outcome = again.run(program);
            self.refused += again.refused;
            return outcome;
        }
        let pc = match exit {
            Exit::Fault(fault) => fault.pc,
            Exit::Returned => RETURN_ADDRESS,
            Exit::Finished | Exit::Parked => slot.hart().pc,
        };
        let state = options.observe.then(|| (pc, slot.hart().x));
        let retired = (options.counting && counts(program.checks, exit)).then(|| slot.hart().retired());
        let result = (options.result && exit == Exit::Returned).then(|| slot.result());
        Outcome { exit, state, result, retired, blocks: kept.blocks(program), log: recorder.log }
    }
}
