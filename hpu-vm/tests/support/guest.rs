//! GuestUsage to attack and to measure with: the memory of one HPU slot, and ways to run programs in it.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeSet;
use std::sync::Arc;

use hpu_vm::jit::{Atomics, Executor, Limits, Options, Slot, Source, Task, Translation};
use hpu_vm::memory::{Access, Region, Space};
use hpu_vm::{Checks, Code, Device, Exit, RegionKind};
use spin_abi::fault::Fault;
use spin_abi::map::{HANDLER_ARGS, L2_BASE, Machine, PACKET_WINDOW, PAGE, PROGRAM_BASE, STACK_WINDOW, TASK_BLOCK};

/// The machine.
pub const MACHINE: Machine = Machine::PSPIN;
/// Where code begins, and the handler.
pub const CODE: u32 = PROGRAM_BASE;
/// Bytes of the packet in both windows.
pub const PACKET: u32 = 1000;
/// Bytes of `.data`.
pub const DATA_LEN: u32 = 0x1080;
/// Bytes of handler memory.
pub const HANDLER_MEM_LEN: u32 = 0x802;
/// Bytes of scratchpad.
pub const SCRATCHPAD_LEN: u32 = 0x1204;

/// Where a guest's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Cluster it runs on.
    pub cluster: u32,
    /// HPU in the cluster.
    pub hpu: u32,
    /// Where `.data` begins.
    pub data: u32,
    /// Where handler memory begins.
    pub handler_mem: u32,
}

/// The attacker's, on neither the first cluster nor the first HPU, with nothing of its own next to its windows.
pub const OWN: Place = Place { cluster: 1, hpu: 3, data: L2_BASE, handler_mem: MACHINE.handler_mem_base };
/// The victim's.
pub const FOREIGN: Place =
    Place { cluster: 0, hpu: 0, data: L2_BASE + 0x1_0000, handler_mem: MACHINE.handler_mem_base + 0x1_0000 };

impl Place {
    /// End of the stack.
    pub const fn stack_end(self) -> u32 {
        MACHINE.stack_base(self.cluster, self.hpu) + STACK_WINDOW
    }

    /// The writable ranges but the packet in L2.
    pub fn ranges(self) -> [(RegionKind, u32, u32); 5] {
        [
            (RegionKind::Stack, MACHINE.stack_base(self.cluster, self.hpu), STACK_WINDOW),
            (RegionKind::Packet, MACHINE.l1_packet_base(self.cluster, self.hpu), PACKET),
            (RegionKind::Scratchpad, MACHINE.scratchpad_base(self.cluster), SCRATCHPAD_LEN),
            (RegionKind::Data, self.data, DATA_LEN),
            (RegionKind::HandlerMemory, self.handler_mem, HANDLER_MEM_LEN),
        ]
    }

    /// The window of the packet in L2.
    pub const fn l2_packet(self) -> u32 {
        MACHINE.l2_packet_window(self.cluster, self.hpu)
    }
}

/// A slot, and all bytes that its tasks can reach.
pub struct Guest {
    pub slot: Slot,
    /// The packet in L2.
    pub frame: Vec<u8>,
    /// The slot's memory up to the ends of its pages.
    whole: Space,
    /// Base and bytes of each range of `whole`.
    pages: Vec<(u32, u32)>,
}

impl Guest {
    /// A guest whose memory is filled with `byte`, and runs `code`.
    pub fn new(place: Place, code: &Code, byte: u8) -> Self {
        let regions = place.ranges().map(|(kind, base, len)| {
            let region = Region::new(len as usize).expect("memory");
            (kind, base, len, region)
        });
        let mut guest = Self::with(place, code, &regions);
        guest.fill(byte);
        guest
    }

    /// Fills its memory with `byte`.
    pub fn fill(&mut self, byte: u8) {
        for &(base, len) in &self.pages {
            self.whole.copy_in(base, &vec![byte; len as usize]).expect("writable");
        }
        self.frame.fill(byte);
    }

    /// A guest whose ranges (kind, base, length, memory) are the caller's, as they are.
    pub fn with(place: Place, code: &Code, ranges: &[(RegionKind, u32, u32, Arc<Region>)]) -> Self {
        let (mut space, mut whole, mut pages) = (space(), space(), Vec::new());
        for (kind, base, len, region) in ranges {
            let all = len.next_multiple_of(PAGE);
            space.map(*kind, *base, region, 0, *len, Access::Write).expect("mapped");
            whole.map(*kind, *base, region, 0, all, Access::Write).expect("mapped");
            pages.push((*base, all));
        }
        for segment in code.segments().iter().filter(|segment| !segment.bytes.is_empty()) {
            let region = Region::around(segment.base, &segment.bytes).expect("memory");
            let len = u32::try_from(segment.bytes.len()).expect("32 bits");
            let all = len.next_multiple_of(PAGE);
            space.map(RegionKind::Code, segment.base, &region, 0, len, Access::Read).expect("mapped");
            whole.map(RegionKind::Code, segment.base, &region, 0, all, Access::Write).expect("mapped");
        }
        space.map_l2_packet(place.l2_packet()).expect("mapped");
        space.set_l1_alias(MACHINE.l1_base(place.cluster), MACHINE.l1_size).expect("an alias");
        space.set_task_alias(place.stack_end() - TASK_BLOCK);
        let id = place.cluster * MACHINE.hpus_per_cluster + place.hpu;
        Self { slot: Slot::new(id, space), frame: vec![0; PACKET as usize], whole, pages }
    }

    /// All writable memory, to the end of its pages, then the packet in L2.
    pub fn memory(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for &(base, len) in &self.pages {
            let at = all.len();
            all.resize(at + len as usize, 0);
            self.whole.copy_out(base, &mut all[at..]).expect("readable");
        }
        all.extend_from_slice(&self.frame);
        all
    }

    /// The code as it is in memory.
    pub fn code(&self, at: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.whole.copy_out(at, &mut bytes).expect("code is readable");
        bytes
    }

    /// A word of its memory.
    pub fn word(&self, address: u32) -> u32 {
        let mut bytes = [0; 4];
        self.whole.copy_out(address, &mut bytes).expect("readable");
        u32::from_le_bytes(bytes)
    }

    /// Fills its memory so that no two words next to each other are the same.
    pub fn scatter(&mut self) {
        let byte = |at: u32| (at.wrapping_mul(0x9e37_79b1) >> 13).to_le_bytes()[0];
        for &(base, len) in &self.pages {
            let bytes: Vec<u8> = (base..base + len).map(byte).collect();
            self.whole.copy_in(base, &bytes).expect("writable");
        }
        (0..).zip(&mut self.frame).for_each(|(at, place)| *place = byte(at));
    }

    /// Sets a word of its memory.
    pub fn set_word(&mut self, address: u32, value: u32) {
        self.whole.copy_in(address, &value.to_le_bytes()).expect("writable");
    }
}

fn space() -> Space {
    Space::new().expect("a space")
}

/// A task at the beginning of `code`, without any limit.
pub fn task<'t>(place: Place, code: &'t Code, translation: Option<&'t Translation>) -> Task<'t> {
    Task {
        code,
        translation,
        entry: CODE,
        sp: place.stack_end() - TASK_BLOCK,
        argument: place.stack_end() - HANDLER_ARGS,
        tp: 0,
        limits: Limits { time: None, instructions: None },
        may_park: false,
        host: None,
    }
}

/// Translates `code`, whose computed jumps go to `taken`.
pub fn translate(code: &Code, taken: &[u32], options: Options) -> Translation {
    let taken: BTreeSet<u32> = taken.iter().copied().collect();
    let source = Source { code, entries: &[CODE], taken: &taken };
    Translation::new(source, options).unwrap_or_else(|error| panic!("{error}"))
}

/// A way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub checks: Checks,
    /// `None`: the interpreter.
    pub options: Option<Options>,
}

impl Way {
    /// The interpreter.
    pub const fn interpreter(checks: Checks) -> Self {
        Self { checks, options: None }
    }

    /// Every translation with these checks: atomics of both kinds, one that takes any address for a device's, and one for the clock
    /// alone, as most handlers are translated.
    pub fn translated(checks: Checks) -> impl Iterator<Item = Self> {
        let clocked = Options { checks, atomics: Atomics::Home, ..Options::default() };
        let home = Options { counting: true, ..clocked };
        let shared = Options { atomics: Atomics::Shared, ..home };
        let any_device = Options { any_device: true, ..shared };
        [home, shared, any_device, clocked].into_iter().map(move |options| Self { checks, options: Some(options) })
    }

    /// Whether tasks end at their limit exactly.
    pub const fn counts(self) -> bool {
        matches!(self.options, None | Some(Options { counting: true, .. }))
    }

    /// In a word or two.
    pub fn name(self) -> String {
        let checks = format!("{:?}", self.checks).to_lowercase();
        match self.options {
            None => format!("interp {checks}"),
            Some(Options { any_device: true, .. }) => format!("jit {checks} any-device"),
            Some(Options { counting: false, .. }) => format!("jit {checks} clocked"),
            Some(options) => format!("jit {checks} {:?}", options.atomics).to_lowercase(),
        }
    }

    /// Runs `code` in `guest` for at most `limit` instructions, or as long as it takes where they are not counted.
    pub fn run<D: Device>(
        self,
        executor: &Executor,
        guest: &mut Guest,
        place: Place,
        (code, taken): (&Code, &[u32]),
        limit: u64,
        device: &mut D,
    ) -> Exit {
        guest.slot.view().set_checks(self.checks);
        let translation = self.options.map(|options| translate(code, taken, options));
        let limits = Limits { time: None, instructions: self.counts().then_some(limit) };
        let task = Task { limits, ..task(place, code, translation.as_ref()) };
        executor.run(&mut guest.slot, &mut guest.frame, &task, device)
    }
}

/// Whether two ends are the same, but for what the fault of an access to two pages may name, where pages are checked: the second page.
pub fn same(checks: Checks, expected: Exit, found: Exit) -> bool {
    let (Exit::Fault(fault), Exit::Fault(other)) = (expected, found) else { return expected == found };
    let next_page = (fault.address | (PAGE - 1)).wrapping_add(1);
    let crosses = next_page.wrapping_sub(fault.address) < 4;
    fault == other || checks == Checks::Page && crosses && other == Fault { address: next_page, ..fault }
}

/// The page that a window of one HPU lies in is as large as the window.
const _: () = assert!(PACKET_WINDOW == PAGE && STACK_WINDOW == PAGE);
