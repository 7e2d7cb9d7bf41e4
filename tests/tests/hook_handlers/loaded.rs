//! A handler in the kernel, and its memory.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use hpu_vm::bpf::layout::{Description, Maps, Range, SLOT};
use hpu_vm::bpf::{L1Packet, Layout, Options, Program as Translated, Source};
use hpu_vm::{Image, Kind, RegionKind};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use spin_abi::map::{Machine, PAGE};
use spin_nic::hook::{ArrayMap, LoadError, LoadOptions, Program};

pub const MACHINE: Machine = Machine::PSPIN;
/// Bytes of handler memory, with what the image has there.
const HANDLER_MEM: u32 = 4 * PAGE;
/// Bytes of each cluster's scratchpad.
const SCRATCHPAD: u32 = 2 * PAGE;
/// Loop iterations that a handler may take.
const BUDGET: u64 = 1_000_000;

/// Memory that all processors share.
#[derive(Clone, PartialEq, Eq)]
pub struct Shared {
    pub base: u32,
    pub kind: RegionKind,
    pub writable: bool,
    pub bytes: Vec<u8>,
}

/// The first form of a program in which a handler loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    Forgetful,
    OpaqueForgetful,
}

impl Form {
    fn options(self, decides: bool) -> Options {
        Options { opaque: self == Self::OpaqueForgetful, forgetful: self != Self::Plain, decides, ..Options::default() }
    }
}

/// A payload handler, and the initial content of its memory.
pub struct Handler {
    pub image: Image,
    pub entry: u32,
    /// Whether its return value is a verdict.
    pub decides: bool,
    pub layout: Layout,
    pub shared: Vec<Shared>,
    /// The processor that runs it.
    processor: u32,
    slots: Vec<u8>,
}

impl Handler {
    /// A handler for the processor of this thread, see [`pin`].
    pub fn new(name: &str, decides: bool, processor: u32) -> Self {
        let image = Image::load(&spin_handlers::image(name, &[]), &MACHINE).expect("an image");
        let entry = image.handler(Kind::Payload).expect("a payload handler");
        let shared = shared(&image);
        let ranges = shared.iter().zip(Maps::MEMORY..).map(|(part, map)| Range {
            base: part.base,
            len: u32::try_from(part.bytes.len()).expect("short"),
            writable: part.writable,
            map,
            offset: 0,
        });
        let layout = Layout {
            machine: MACHINE,
            hpu: (0, 0),
            first_hpu: 0,
            first_flow: 0,
            processors: processor + 1,
            ranges: ranges.collect(),
            host_queue: None,
            own_task: false,
            replies: None,
        };
        let start = image.handler_mem_end().next_multiple_of(PAGE);
        let description = Description {
            handler_mem: (start, MACHINE.handler_mem_base + HANDLER_MEM - start),
            scratchpads: [0, 1, 2, 3].map(|cluster| (MACHINE.scratchpad_base(cluster), SCRATCHPAD)),
            host: (0, 0),
            unit: [0; 2],
        };
        let slots = layout.slots(&description);
        Self { image, entry, decides, layout, shared, processor, slots }
    }

    /// The initial content of the processor's slot.
    pub fn slot(&self) -> &[u8] {
        &self.slots[(self.processor * SLOT) as usize..]
    }

    /// Loads a form.
    ///
    /// # Errors
    /// Why the handler is not eligible, or the kernel's reason to refuse the form.
    pub fn load(&self, form: Form) -> Result<Loaded<'_>, String> {
        let taken: BTreeSet<u32> = self.image.addresses_taken();
        let source = Source { code: self.image.code(), entry: self.entry, taken: &taken };
        let translated = Translated::new(source, &self.layout, form.options(self.decides));
        let translated = translated.map_err(|reason| format!("not eligible: {reason}"))?;
        let instructions: Vec<[u8; 8]> = translated.insns().encode().into_iter().map(|insn| insn.bytes()).collect();
        let mut configuration = vec![0; Maps::CONFIGURATION_SIZE as usize];
        configuration[..8].copy_from_slice(&BUDGET.to_ne_bytes());
        let configuration = ArrayMap::read_only("configuration", &configuration).expect("a map");
        let array = |bytes: &[u8]| ArrayMap::new("memory", u32::try_from(bytes.len()).expect("short")).expect("a map");
        let slots = array(&self.slots);
        let maps: Vec<ArrayMap> = self.shared.iter().map(|part| array(&part.bytes)).collect();
        let all = [&configuration, &slots].into_iter().chain(&maps);
        let descriptors: Vec<_> = all.map(AsFd::as_fd).collect();
        let loaded = Program::load(&instructions, &descriptors, LoadOptions { name: "handler", full_log: false });
        let program = loaded.map_err(|error| match error {
            LoadError::Refused(refusal) => format!("refused: {}", refusal.message),
            other => panic!("{other}"),
        })?;
        Ok(Loaded { handler: self, program, slots, maps, l1: translated.l1_packet() })
    }
}

/// Memory of an image and a context.
fn shared(image: &Image) -> Vec<Shared> {
    let part = |base, kind, bytes| Shared { base, kind, writable: true, bytes };
    let memory = vec![0; HANDLER_MEM as usize];
    let mut all = vec![part(MACHINE.handler_mem_base, RegionKind::HandlerMemory, memory)];
    let scratchpad =
        |cluster| part(MACHINE.scratchpad_base(cluster), RegionKind::Scratchpad, vec![0; SCRATCHPAD as usize]);
    all.extend((0..MACHINE.clusters).map(scratchpad));
    for (base, kind, writable, bytes) in image.segments() {
        if kind == RegionKind::HandlerMemory {
            let at = (base - MACHINE.handler_mem_base) as usize;
            all[0].bytes[at..at + bytes.len()].copy_from_slice(bytes);
        } else {
            all.push(Shared { base, kind, writable, bytes: bytes.to_vec() });
        }
    }
    all
}

/// What a run came to.
pub struct Observed {
    pub action: u32,
    pub frame: Vec<u8>,
    pub slot: Vec<u8>,
}

/// A handler's program, and its maps.
pub struct Loaded<'h> {
    pub handler: &'h Handler,
    program: Program,
    slots: ArrayMap,
    maps: Vec<ArrayMap>,
    /// How the packet in L1 is kept.
    pub l1: Option<L1Packet>,
}

impl Loaded<'_> {
    /// Gives all memory its initial content.
    pub fn reset(&self) {
        self.slots.write(&self.handler.slots).expect("written");
        let parts = self.maps.iter().zip(&self.handler.shared);
        parts.for_each(|(map, part)| map.write(&part.bytes).expect("written"));
    }

    /// Runs the program on a frame.
    pub fn run(&self, frame: &[u8]) -> Observed {
        let run = self.program.test_run(frame, 1).expect("a run");
        let mut slots = self.slots.read().expect("read");
        let slot = slots.split_off((self.handler.processor * SLOT) as usize);
        Observed { action: run.action, frame: run.frame, slot }
    }

    /// The shared memory as it is now.
    pub fn shared(&self) -> impl Iterator<Item = Vec<u8>> {
        self.maps.iter().map(|map| map.read().expect("read"))
    }
}

/// Restricts this thread to the first processor that it may run on, and returns its number: a test run takes place on
/// the processor of its thread.
pub fn pin() -> u32 {
    let allowed = sched_getaffinity(None).expect("processors");
    let first = (0..CpuSet::MAX_CPU).find(|&number| allowed.is_set(number)).expect("one");
    let mut only = CpuSet::new();
    only.set(first);
    sched_setaffinity(None, &only).expect("a thread may run where it runs");
    u32::try_from(first).expect("small")
}
