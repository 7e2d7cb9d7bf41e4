//! Shadow interpreter: runs each task translated, then interpreted on a copy of the earlier memory, and compares both. The
//! devices of the second run replay the answers of the first. Slow: a test of the translator.

use std::fmt;
use std::slice::Iter;
use std::sync::Arc;
use std::task::Poll;

use hpu_vm::jit::{Executor, Limits, Translation};
use hpu_vm::memory::{Region, SpaceError};
use hpu_vm::{Checks, Device, Exit, Hart, NoDevice, Reg, Trap, View};
use spin_abi::command::{Command, Direction, Status};
use spin_abi::control::Placement;
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::{Machine, PAGE};

use crate::hpu::memory::{ContextMemory, HpuId, ImageMemory, saturate};
use crate::hpu::task::TaskSpec;
use crate::hpu::windows::HpuMemory;

/// Time limit of the interpreter in microseconds, for a task that reached its own limit in translated code.
const INTERPRETER_LIMIT: u64 = 2_000_000;
/// Time limit of the interpreter in microseconds, for a task whose handler may wait for memory to change. The answer of a host that came during
/// the first run is not in the copy, on which the second run then waits in vain.
const WAITING_LIMIT: u64 = 5_000;

/// Difference between the two runs of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The exit.
    Exit {
        /// Exit of the translated run.
        translated: Exit,
        /// Exit of the interpreted run.
        interpreted: Exit,
    },
    /// A register at the end.
    Register {
        /// Number of the register.
        register: usize,
        /// Value of the translated run.
        translated: u32,
        /// Value of the interpreted run.
        interpreted: u32,
    },
    /// Memory at the end.
    Memory {
        /// Guest address of the first byte that differs. `None` if handlers do not see that byte.
        address: Option<u32>,
    },
    /// The packet in L2 at the end.
    Packet {
        /// Offset of the first byte that differs.
        offset: usize,
    },
    /// The device accesses.
    Device(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { translated, interpreted } => {
                write!(f, "it ended as {translated:?} translated, as {interpreted:?} interpreted")
            }
            Self::Register { register, translated, interpreted } => {
                write!(f, "x{register} was {translated:#010x} translated, {interpreted:#010x} interpreted")
            }
            Self::Memory { address: Some(address) } => write!(f, "memory at {address:#010x}"),
            Self::Memory { address: None } => f.write_str("memory that handlers do not see"),
            Self::Packet { offset } => write!(f, "byte {offset} of the packet in L2"),
            Self::Device(what) => f.write_str(what),
        }
    }
}

/// Copies of a context's memory, for the interpreter.
#[derive(Debug)]
pub struct ShadowMemory {
    image: (Arc<Region>, ImageMemory),
    context: (Arc<Region>, ContextMemory),
}

impl ShadowMemory {
    /// Memory of the same size and layout.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn new(image: &ImageMemory, context: &ContextMemory) -> Result<Self, SpaceError> {
        Ok(Self {
            image: (image.region().clone(), image.blank_copy()?),
            context: (context.region().clone(), context.blank_copy()?),
        })
    }

    /// Copies the originals.
    fn copy(&self) {
        for (original, copy) in self.regions() {
            for_pages(original, copy, |offset, page, _| {
                let written = copy.write(offset, page);
                debug_assert!(written.is_some(), "the copy is as long");
                None::<()>
            });
        }
    }

    /// First difference between copies and originals, with the guest address for tasks on `own`.
    fn difference(&self, own: HpuId) -> Option<Difference> {
        let [image, context] = self.regions();
        let differ = |page: &[u8], other: &[u8]| page.iter().zip(other).position(|(a, b)| a != b);
        let found = for_pages(image.0, image.1, |offset, page, other| {
            differ(page, other).map(|at| self.image.1.address(saturate((offset + at) as u64)))
        });
        let found = found.or_else(|| {
            for_pages(context.0, context.1, |offset, page, other| {
                // The L2 window is not compared here: `run_both` compares the packets.
                let at = differ(page, other).filter(|_| !self.context.1.is_l2_window(saturate(offset as u64)))?;
                Some(self.context.1.address(own, saturate((offset + at) as u64)))
            })
        });
        found.map(|address| Difference::Memory { address })
    }

    fn regions(&self) -> [(&Region, &Region); 2] {
        [(&self.image.0, self.image.1.region()), (&self.context.0, self.context.1.region())]
    }
}

/// Calls `look` with the offset and the bytes of each page of two regions of equal length, until it returns a result.
fn for_pages<R>(first: &Region, second: &Region, mut look: impl FnMut(usize, &[u8], &[u8]) -> Option<R>) -> Option<R> {
    let mut pages = [[0; PAGE as usize]; 2];
    let [one, other] = &mut pages;
    (0..first.len()).step_by(PAGE as usize).find_map(|offset| {
        first.read(offset, one)?;
        second.read(offset, other)?;
        look(offset, one, other)
    })
}

/// The HPU on which the interpreter repeats tasks of translated code.
#[derive(Debug)]
pub struct ShadowInterpreter {
    hpu: HpuMemory,
    memory: Arc<ShadowMemory>,
    own: HpuId,
}

impl ShadowInterpreter {
    /// Shadow of the HPU `own`, on copies of its memory.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn new(
        machine: &Machine,
        own: HpuId,
        memory: Arc<ShadowMemory>,
        placement: Placement,
        checks: Checks,
    ) -> Result<Self, SpaceError> {
        let hpu = HpuMemory::new(machine, own, &memory.image.1, &memory.context.1, placement, checks)?;
        Ok(Self { hpu, memory, own })
    }

    /// Runs a task that `original` is prepared for, then repeats it in the interpreter and compares. A task that parks is not compared.
    pub(crate) fn run_both<D: Device>(
        &mut self,
        original: &mut HpuMemory,
        executor: &Executor,
        spec: TaskSpec<'_>,
        packet: &mut [u8],
        device: &mut D,
    ) -> (Exit, Option<Difference>) {
        self.hpu.begin_as(original);
        // Both runs need the packet in L1, also if only one reads it. Both slots then know how much of it L1 holds.
        [&original.slot, &self.hpu.slot].into_iter().for_each(|slot| slot.show_in_l1(packet));
        self.memory.copy();
        let mut copy = packet.to_vec();
        let touched = original.slot.device_touched();
        let mut recorder = Recorder { device, log: Vec::new() };
        let translated = original.run(executor, spec, true, packet, &mut recorder);
        let log = recorder.log;
        // A device access that the translation took for memory makes it invalid; the engine makes another one. A task that
        // ran into its time limit stops at a different place each time. One that parks waits for what only happens while
        // other tasks run, or the host answers.
        if translated == Exit::Parked {
            return (translated, None);
        }
        if original.slot.device_touched() != touched || timed_out(translated, spec.limits) {
            return (translated, None);
        }
        let mut replay = Replay { log: log.iter(), charge: 0, departure: None };
        let limit = if spec.translation.is_some_and(Translation::waits) { WAITING_LIMIT } else { INTERPRETER_LIMIT };
        let limits = Limits { time: spec.limits.time.map(|_| limit), ..spec.limits };
        let again = TaskSpec { translation: None, limits, ..spec };
        let interpreted = self.hpu.run(executor, again, false, &mut copy, &mut replay);
        if timed_out(interpreted, limits) {
            return (translated, None);
        }
        let device = replay.difference();
        let exit = (translated != interpreted).then_some(Difference::Exit { translated, interpreted });
        let registers = || registers(original.slot.hart(), self.hpu.slot.hart());
        let packets = || packet.iter().zip(&copy).position(|(a, b)| a != b).map(|offset| Difference::Packet { offset });
        let memory = || self.memory.difference(self.own);
        (translated, device.or(exit).or_else(registers).or_else(packets).or_else(memory))
    }
}

/// Whether the time limit ended a task.
const fn timed_out(exit: Exit, limits: Limits) -> bool {
    matches!(exit, Exit::Fault(Fault { cause: Cause::Watchdog, .. })) && limits.instructions.is_none()
}

fn registers(translated: &Hart, interpreted: &Hart) -> Option<Difference> {
    let mut values = translated.x.into_iter().zip(interpreted.x).enumerate();
    let (register, (translated, interpreted)) = values.find(|(_, (a, b))| a != b)?;
    Some(Difference::Register { register, translated, interpreted })
}

/// An access to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Access {
    Load { address: u32, width: u8 },
    Store { address: u32, width: u8, value: u32 },
    Issue(Result<Command, Status>),
    Wait { handle: u32 },
    Ecall { number: u32 },
}

/// An access and its result.
#[derive(Debug)]
struct Entry {
    access: Access,
    result: Result<u32, Trap>,
    charge: u64,
    /// Bytes that it wrote to memory that handlers see.
    written: Option<Written>,
}

/// Guest address and bytes.
type Written = (u32, Vec<u8>);

impl Entry {
    /// Repeats the writes of the access.
    fn write_again(&self, view: &mut View<'_>) {
        if let Some((address, bytes)) = &self.written {
            let copied = view.copy_in(*address, bytes);
            debug_assert!(copied.is_some() || self.result.is_err(), "the memory is the same");
        }
    }
}

/// Devices, and a record of the accesses.
struct Recorder<'d, D> {
    device: &'d mut D,
    log: Vec<Entry>,
}

impl<D> Recorder<'_, D> {
    fn note<T: Copy + Into<u32>>(&mut self, access: Access, result: Result<T, Trap>) -> Result<T, Trap> {
        self.log.push(Entry { access, result: result.map(Into::into), charge: 0, written: None });
        result
    }

    fn note_written(
        &mut self,
        access: Access,
        result: Result<u32, Trap>,
        written: Option<Written>,
    ) -> Result<u32, Trap> {
        let result = self.note(access, result);
        if let Some(entry) = self.log.last_mut() {
            entry.written = written;
        }
        result
    }

    fn note_done(&mut self, access: Access, result: Result<(), Trap>) -> Result<(), Trap> {
        self.note(access, result.map(|()| 0u32)).map(|_| ())
    }
}

impl<D: Device> Device for Recorder<'_, D> {
    fn load(&mut self, view: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        let result = self.device.load(view, address, width);
        let written = self.device.take_written().and_then(|(address, len)| bytes(view, address, len));
        self.note_written(Access::Load { address, width }, result, written)
    }

    fn store(&mut self, view: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        let result = self.device.store(view, address, width, value);
        self.note_done(Access::Store { address, width, value }, result)
    }

    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        let result = self.device.issue(view, command);
        let written = written(view, command);
        // `note_written` returns the device's result, which `result` already is.
        let _ = self.note_written(Access::Issue(command), result.map_err(Trap::Fault), written);
        result
    }

    fn wait(&mut self, view: &mut View<'_>, handle: u32) -> Poll<Result<(), Trap>> {
        self.device.wait(view, handle).map(|result| self.note_done(Access::Wait { handle }, result))
    }

    fn take_charge(&mut self) -> u64 {
        let charge = self.device.take_charge();
        if let Some(entry) = self.log.last_mut() {
            entry.charge += charge;
        }
        charge
    }

    fn ecall(&mut self, hart: &mut Hart, view: &mut View<'_>) -> Result<(), Trap> {
        let access = Access::Ecall { number: hart.get(Reg::A7) };
        let result = self.device.ecall(hart, view);
        self.note(access, result.map(|()| hart.get(Reg::A0))).map(|_| ())
    }
}

/// Current bytes of the memory that a command may have written.
fn written(view: &View<'_>, command: Result<Command, Status>) -> Option<Written> {
    let Ok(Command::Dma { nic, length, direction: Direction::FromHost, .. }) = command else { return None };
    bytes(view, nic, length)
}

/// Current bytes of memory.
fn bytes(view: &View<'_>, address: u32, len: u32) -> Option<Written> {
    view.kind_of(address, len)?;
    let mut bytes = vec![0; len as usize];
    view.copy_out(address, &mut bytes)?;
    Some((address, bytes))
}

/// Devices that replay a record.
struct Replay<'l> {
    log: Iter<'l, Entry>,
    charge: u64,
    /// The first access that differs from the record.
    departure: Option<Difference>,
}

impl<'l> Replay<'l> {
    fn answer(&mut self, access: Access) -> Result<&'l Entry, Trap> {
        match self.log.next() {
            Some(entry) if entry.access == access => {
                self.charge += entry.charge;
                Ok(entry)
            }
            other => {
                let translated = other.map(|entry| entry.access.clone());
                let text = format!("device access {translated:x?} translated, {access:x?} interpreted");
                self.departure.get_or_insert(Difference::Device(text));
                Err(Trap::Finish)
            }
        }
    }

    fn difference(mut self) -> Option<Difference> {
        let left = self.log.next().map(|entry| format!("device access {:x?} translated only", entry.access));
        self.departure.or(left.map(Difference::Device))
    }
}

impl Device for Replay<'_> {
    fn load(&mut self, view: &mut View<'_>, address: u32, width: u8) -> Result<u32, Trap> {
        let entry = self.answer(Access::Load { address, width })?;
        entry.write_again(view);
        entry.result
    }

    fn store(&mut self, _: &mut View<'_>, address: u32, width: u8, value: u32) -> Result<(), Trap> {
        self.answer(Access::Store { address, width, value })?.result.map(|_| ())
    }

    fn issue(&mut self, view: &mut View<'_>, command: Result<Command, Status>) -> Result<u32, Cause> {
        let cause = |trap| match trap {
            Trap::Fault(cause) => cause,
            // The command differs from the recorded one.
            _ => Cause::DeviceAccess,
        };
        let entry = self.answer(Access::Issue(command)).map_err(cause)?;
        entry.write_again(view);
        entry.result.map_err(cause)
    }

    fn wait(&mut self, _: &mut View<'_>, handle: u32) -> Poll<Result<(), Trap>> {
        Poll::Ready(self.answer(Access::Wait { handle }).and_then(|entry| entry.result.map(|_| ())))
    }

    fn take_charge(&mut self) -> u64 {
        std::mem::take(&mut self.charge)
    }

    fn ecall(&mut self, hart: &mut Hart, view: &mut View<'_>) -> Result<(), Trap> {
        let entry = self.answer(Access::Ecall { number: hart.get(Reg::A7) })?;
        let result = NoDevice.ecall(hart, view).map(|()| hart.get(Reg::A0));
        if result != entry.result {
            let text = format!("an ecall gave {:x?} translated, {result:x?} interpreted", entry.result);
            self.departure.get_or_insert(Difference::Device(text));
        }
        result.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hpu_vm::jit::{Executor, Limits, Options, Source, Translation};
    use hpu_vm::{Checks, Image, Kind, NoDevice};
    use spin_abi::control::{Isolation, Placement};
    use spin_abi::map::Machine;

    use super::{Difference, ShadowInterpreter, ShadowMemory};
    use crate::hpu::memory::{ContextMemory, ContextSizes, HpuId, ImageMemory};
    use crate::hpu::windows::HpuMemory;
    use crate::hpu::{TaskIdentity, TaskSpec};
    use crate::ids::Handler;

    const MACHINE: Machine = Machine::PSPIN;
    const OWN: HpuId = HpuId { cluster: 1, hpu: 0 };

    const SIZES: ContextSizes = ContextSizes { hpus: 1, handler: 64, scratchpad: 64 };

    /// Difference that is found when the translation of `translated` runs in place of that of `interpreted`.
    fn difference(translated: &str, interpreted: &str) -> Option<Difference> {
        difference_after(translated, interpreted, Checks::Exact, &[(64, true)])
    }

    /// Difference that is found for the last packet. `packets`: their lengths, and whether they are compared.
    fn difference_after(
        translated: &str,
        interpreted: &str,
        checks: Checks,
        packets: &[(usize, bool)],
    ) -> Option<Difference> {
        let load = |body: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let source = folder.path().join("handler.c");
            std::fs::write(
                &source,
                format!("#include <spin.h>\nvoid payload_handler(handler_args_t *args) {{ {body} }}"),
            )
            .expect("a file");
            let file = spin_handlers::try_build(&[&source], &[]).expect("it compiles");
            Image::load(&file, &MACHINE).expect("an image")
        };
        let (image, other) = (load(interpreted), load(translated));
        let handler = Handler { address: image.handler(Kind::Payload).expect("a handler"), size: 0 };
        assert_eq!(other.handler(Kind::Payload), Some(handler.address));
        let taken = other.addresses_taken();
        let source = Source { code: other.code(), entries: &[handler.address], taken: &taken };
        let translation =
            Translation::new(source, Options { observe: true, checks, ..Options::default() }).expect("translates");

        let image_memory = ImageMemory::new(&image).expect("memory");
        let memory = ContextMemory::new(&MACHINE, image.handler_mem_end(), SIZES).expect("memory");
        let shadow_memory = Arc::new(ShadowMemory::new(&image_memory, &memory).expect("memory"));
        let placement = Placement::Any;
        let mut hpu = HpuMemory::new(&MACHINE, OWN, &image_memory, &memory, placement, checks).expect("memory");
        let mut shadow = ShadowInterpreter::new(&MACHINE, OWN, shadow_memory, placement, checks).expect("memory");
        let spec = TaskSpec {
            handler,
            identity: TaskIdentity { flow: 3, message: 1 },
            l1_bytes: 128,
            image: &image,
            translation: Some(&translation),
            limits: Limits { time: Some(TIME_LIMIT), instructions: None },
            host: None,
            isolation: Isolation::Context,
        };
        let executor = Executor::new().expect("a timer");
        let mut found = None;
        for &(len, compared) in packets {
            let mut packet = vec![7; len];
            hpu.begin(&executor, &spec, &packet);
            if compared {
                found = shadow.run_both(&mut hpu, &executor, spec, &mut packet, &mut NoDevice).1;
            } else {
                hpu.run(&executor, spec, false, &mut packet, &mut NoDevice);
            }
        }
        found
    }

    const TIME_LIMIT: u64 = 5_000_000;

    #[test]
    fn what_is_the_same_is_said_to_be() {
        let busy = "*(uint32_t *)args->task->handler_mem += 1; *(uint8_t *)args->task->l2_pkt_mem = 9; spin_putc('x');";
        assert_eq!(difference(busy, busy), None);
    }

    #[test]
    fn what_is_behind_a_packet_in_l1_is_the_same_after_tasks_that_were_not_compared() {
        let behind = "((volatile uint8_t *)args->task->pkt_mem)[60]++;";
        let packets = [(100, true), (40, false), (40, true)];
        assert_eq!(difference_after(behind, behind, Checks::Page, &packets), None);
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let nothing = "(void)args;";
        assert!(matches!(difference("__builtin_trap();", nothing), Some(Difference::Exit { .. })));
        let register = "(void)args; __asm__ volatile(\"li t0, 5\");";
        assert!(matches!(difference(register, nothing), Some(Difference::Register { register: 5, translated: 5, .. })));
        // The registers are equal, so that they are not reported as the difference.
        let clean = "__asm__ volatile(\"\" ::: \"memory\"); __asm__ volatile(\"li a0, 0; li a1, 0; li a2, 0; li a3, 0; li a4, 0\");";
        let store = |value: u32| format!("*(volatile uint32_t *)args->task->scratchpad[2] = {value}; {clean}");
        assert_eq!(
            difference(&store(1), &store(2)),
            Some(Difference::Memory { address: Some(MACHINE.scratchpad_base(2)) })
        );
        let store = |value: u32| format!("*(volatile uint8_t *)(args->task->l2_pkt_mem + 5) = {value}; {clean}");
        assert_eq!(difference(&store(1), &store(2)), Some(Difference::Packet { offset: 5 }));
        let print = |byte: u32| format!("*(volatile uint8_t *)SPIN_STDOUT_BASE = {byte}; {clean}");
        assert!(matches!(difference(&print(1), &print(2)), Some(Difference::Device(_))));
    }
}
