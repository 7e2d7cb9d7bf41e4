//! The hook process of spind makes maps and loads handlers into the kernel, and nothing else. Needs root.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hpu_vm::bpf::layout::{Description, Maps, Outcome, Range, Record, SLOT};
use hpu_vm::bpf::{Layout, Options};
use hpu_vm::memory::Region;
use hpu_vm::{Image, RegionKind};
use rustix::process::{Pid, Signal, kill_process};
use spin_abi::map::{Machine, PAGE};
use spin_engine::control::hook_process::ARGUMENT;
use spin_engine::control::hook_process::client::{
    HookError, HookLoadError, HookProcess, HookUnavailable, LoadRequest, LoadedProgram,
};
use spin_engine::control::hook_process::message::{MapToken, Variant};
use spin_nic::hook::{ArrayMap, Program};

const MACHINE: Machine = Machine::PSPIN;
/// CAP_NET_ADMIN (12), CAP_PERFMON (38) and CAP_BPF (39), linux/capability.h.
const CAPABILITIES: u64 = 1 << 12 | 1 << 38 | 1 << 39;
const LIMIT: Duration = Duration::from_secs(20);
const XDP_TX: u32 = 3;

fn start() -> Option<HookProcess> {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("needs root");
        return None;
    }
    match HookProcess::start(Path::new(env!("CARGO_BIN_EXE_spind")), true) {
        Ok(process) => Some(process),
        Err(HookUnavailable::Missing(what)) => {
            spin_testing::skip(&what);
            None
        }
        Err(other) => panic!("{other}"),
    }
}

/// Hook processes that threads of this process started, as ids.
fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").expect("it exists");
    let ids = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let ids: Vec<u32> =
        ids.flat_map(|ids| ids.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect();
    let is_one = |id: &u32| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split('\0').nth(1) == Some(ARGUMENT)
    };
    ids.into_iter().filter(is_one).collect()
}

fn wait_until(mut happens: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happens() {
        assert!(begun.elapsed() < LIMIT, "nothing happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A handler's memory, in maps that the hook process made.
struct Memory {
    tokens: Vec<MapToken>,
    regions: Vec<Arc<Region>>,
    layout: Layout,
}

impl Memory {
    fn map(&mut self, process: &HookProcess, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).expect("short");
        let (token, fd) = process.make_map("spin_test", len).expect("a map");
        let region = Region::adopt(fd, bytes.len()).expect("a region");
        region.write(0, bytes).expect("it fits");
        self.tokens.push(token);
        self.regions.push(region);
    }

    /// Memory for an image, without host memory.
    fn new(process: &HookProcess, image: &Image) -> Self {
        let layout = Layout {
            machine: MACHINE,
            hpu: (0, 0),
            first_hpu: 0,
            first_flow: 0,
            processors: 32,
            ranges: Vec::new(),
            host_queue: None,
            own_task: false,
            replies: None,
        };
        let description = Description {
            handler_mem: (image.handler_mem_end(), MACHINE.handler_mem_size / 2),
            scratchpads: [(0, 0); 4],
            host: (0, 0),
            unit: [0; 2],
        };
        let mut configuration = [0; Maps::CONFIGURATION_SIZE as usize];
        configuration[..8].copy_from_slice(&1_000_000_u64.to_ne_bytes());
        let slots = layout.slots(&description);
        let mut memory = Self { tokens: Vec::new(), regions: Vec::new(), layout };
        memory.map(process, &configuration);
        memory.map(process, &slots);
        let mut handler_mem = vec![0; MACHINE.handler_mem_size as usize];
        let mut segments = Vec::new();
        for (base, kind, writable, bytes) in image.segments() {
            if kind == RegionKind::HandlerMemory {
                let at = (base - MACHINE.handler_mem_base) as usize;
                handler_mem[at..at + bytes.len()].copy_from_slice(bytes);
            } else {
                segments.push((base, writable, bytes));
            }
        }
        memory.range(process, MACHINE.handler_mem_base, true, &handler_mem);
        for (base, writable, bytes) in segments {
            memory.range(process, base, writable, bytes);
        }
        memory
    }

    /// Adds a range at its place in a page.
    fn range(&mut self, process: &HookProcess, base: u32, writable: bool, bytes: &[u8]) {
        let offset = base % PAGE;
        let (map, len) = (u32::try_from(self.tokens.len()).expect("few"), u32::try_from(bytes.len()).expect("short"));
        let mut content = vec![0; offset as usize];
        content.extend_from_slice(bytes);
        self.map(process, &content);
        self.layout.ranges.push(Range { base, len, writable, map, offset });
    }

    fn record(&self) -> Option<Record> {
        let slots = &self.regions[Maps::SLOTS as usize];
        let mut bytes = vec![0; slots.len()];
        slots.read(0, &mut bytes).expect("inside");
        (0..self.layout.processors).find_map(|processor| Record::read(&bytes, processor))
    }

    fn load(&self, process: &HookProcess, image: &[u8]) -> Result<LoadedProgram, HookLoadError> {
        self.load_as(process, image, &self.layout, &self.tokens)
    }

    fn load_as(
        &self,
        process: &HookProcess,
        image: &[u8],
        layout: &Layout,
        maps: &[MapToken],
    ) -> Result<LoadedProgram, HookLoadError> {
        process.load(LoadRequest { name: "spin_handler", image, layout, options: Options::default(), maps })
    }
}

/// udp_pingpong, and its memory.
fn pingpong(process: &HookProcess) -> (Vec<u8>, Memory) {
    let image = spin_handlers::image("udp_pingpong", &[]);
    let memory = Memory::new(process, &Image::load(&image, &MACHINE).expect("an image"));
    (image.to_vec(), memory)
}

/// A UDP frame from 10.0.0.1 to 10.0.0.2 port 9999.
fn udp(len: usize) -> Vec<u8> {
    let mut frame = vec![0x5a; len];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let ip_len = u16::try_from(len - 14).expect("short").to_be_bytes();
    let header = [0x45, 0, ip_len[0], ip_len[1], 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    frame[14..34].copy_from_slice(&header);
    let udp_len = u16::try_from(len - 34).expect("short").to_be_bytes();
    frame[34..42].copy_from_slice(&[0x12, 0x34, 0x27, 0x0f, udp_len[0], udp_len[1], 0, 0]);
    frame
}

#[test]
fn a_handler_is_loaded_and_answers() {
    let Some(process) = start() else { return };
    let (image, memory) = pingpong(&process);
    let LoadedProgram { fd, facts } = memory.load(&process, &image).expect("it loads");
    assert_eq!(facts.variant, Variant { opaque: false, forgetful: false });
    assert!(facts.guest_instructions > 20 && facts.instructions > facts.guest_instructions, "{facts:?}");
    assert!(facts.processed.is_some_and(|processed| processed > 100) && facts.load_time > Duration::ZERO, "{facts:?}");
    // The program keeps its maps.
    process.free_maps(&memory.tokens).expect("they exist");
    let program = Program::from_fd(fd);
    for len in [64, 512, 1500] {
        let run = program.test_run(&udp(len), 1).expect("a run");
        let mut expected = udp(len);
        expected[..12].rotate_left(6);
        expected[26..34].rotate_left(4);
        expected[34..38].rotate_left(2);
        assert_eq!((run.action, run.frame), (XDP_TX, expected));
        let record = memory.record().expect("a record");
        assert_eq!((record.outcome, record.sent), (Outcome::Returned, u32::try_from(len).expect("short")));
    }
}

/// The id of a map, from the description of a descriptor (proc_pid_fdinfo(5)).
fn map_id(fdinfo: &Path) -> Option<String> {
    let info = fs::read_to_string(fdinfo).ok()?;
    info.lines().find_map(|line| line.strip_prefix("map_id:").map(|id| id.trim().to_owned()))
}

/// The hook process that holds a map, if one does. Other tests may have processes of their own.
fn holder_of(map: &OwnedFd) -> Option<u32> {
    let wanted = map_id(Path::new(&format!("/proc/self/fdinfo/{}", map.as_raw_fd())));
    assert!(wanted.is_some(), "it is a map");
    let holds = |id: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{id}/fdinfo")).into_iter().flatten().flatten();
        descriptors.into_iter().any(|descriptor| map_id(&descriptor.path()) == wanted)
    };
    children().into_iter().find(holds)
}

#[test]
fn it_has_three_capabilities_and_ends_when_it_is_dropped() {
    let Some(process) = start() else { return };
    let (_, fd) = process.make_map("spin_test", 8).expect("it runs");
    let id = holder_of(&fd).expect("it keeps the map");
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).map(str::trim);
    let set = |name| line(name).and_then(|set| u64::from_str_radix(set, 16).ok());
    let sets = ["CapPrm", "CapEff", "CapInh", "CapAmb"].map(set);
    assert_eq!(sets, [Some(CAPABILITIES), Some(CAPABILITIES), Some(0), Some(0)]);
    let lines = ["Seccomp", "NoNewPrivs", "Threads"].map(line);
    assert_eq!(lines, [Some("2"), Some("1"), Some("1")]);
    drop(process);
    wait_until(|| holder_of(&fd).is_none());
}

#[test]
fn a_hook_process_that_was_ended_is_noticed() {
    let Some(process) = start() else { return };
    let (_, fd) = process.make_map("spin_test", 8).expect("it runs");
    let id = holder_of(&fd).expect("it keeps the map");
    kill_process(Pid::from_raw(id.cast_signed()).expect("an id"), Signal::KILL).expect("a child");
    wait_until(|| process.make_map("spin_test", 8).is_err());
    let error = process.make_map("spin_test", 8).expect_err("it has ended");
    assert!(matches!(error, HookError::Process(_)), "{error}");
}

#[test]
fn each_handler_is_loaded_or_has_a_reason() {
    let Some(process) = start() else { return };
    let mut variants = Vec::new();
    for name in ["icmp_echo", "filtering", "kvstore", "strided_ddt", "aggregate", "reduce", "histogram"] {
        let image = spin_handlers::image(name, &[]);
        let memory = Memory::new(&process, &Image::load(&image, &MACHINE).expect("an image"));
        let begun = Instant::now();
        let loaded = memory.load(&process, &image);
        // Three seconds, and the last attempt; more on a busy machine.
        assert!(begun.elapsed() < LIMIT, "{name}: {:?}", begun.elapsed());
        match loaded {
            Ok(loaded) => {
                println!("{name}: {:?}", loaded.facts);
                variants.push(loaded.facts.variant);
            }
            Err(error @ (HookLoadError::NotEligible(_) | HookLoadError::NotAccepted(_))) => {
                let reason = error.to_string();
                println!("{name}: {reason}");
                assert_eq!(reason.lines().count(), 1, "{reason}");
            }
            Err(HookLoadError::Hook(error)) => panic!("{name}: {error}"),
        }
        process.free_maps(&memory.tokens).expect("they exist");
    }
    assert!(!variants.is_empty());
}

#[test]
fn the_tier_that_is_off_starts_nothing() {
    let started = HookProcess::start(Path::new("/nonexistent"), false);
    assert_eq!(started.err(), Some(HookUnavailable::Off));
}

#[test]
fn a_layout_that_does_not_fit_the_maps_is_refused() {
    let Some(process) = start() else { return };
    let (image, memory) = pingpong(&process);
    let refused = |layout: &Layout, maps: &[MapToken]| match memory.load_as(&process, &image, layout, maps) {
        Err(HookLoadError::Hook(HookError::Refused(reason))) => reason,
        other => panic!("{other:?}"),
    };
    let with = |change: &dyn Fn(&mut Layout)| {
        let mut layout = memory.layout.clone();
        change(&mut layout);
        refused(&layout, &memory.tokens)
    };
    assert!(with(&|layout| layout.ranges[0].len += 4).contains("of map 2"));
    assert!(with(&|layout| layout.ranges[0].offset = u32::MAX).contains("of map 2"));
    assert!(with(&|layout| layout.ranges[0].map = Maps::SLOTS).contains("map 1 has another kind or use"));
    assert!(with(&|layout| layout.processors += 1).contains("33 processors"));
    assert!(with(&|layout| layout.machine.clusters = 0).contains("the machine is impossible"));
    assert!(with(&|layout| layout.host_queue = Some(99)).contains("map 99 is not in the list"));
    // Maps that are too small, do not exist, or have two uses.
    let (small, _) = process.make_map("spin_small", SLOT).expect("a map");
    let replaced = |index: usize, token| {
        let mut tokens = memory.tokens.clone();
        tokens[index] = token;
        refused(&memory.layout, &tokens)
    };
    assert!(replaced(1, small).contains("32 processors"));
    assert!(replaced(2, small).contains("of map 2"));
    assert!(replaced(2, memory.tokens[1]).contains("named twice"));
    process.free_maps(&[small]).expect("it exists");
    assert!(replaced(1, small).contains("does not exist"));
    assert!(process.free_maps(&[small]).is_err(), "freed before");
    // It goes on.
    memory.load(&process, &image).expect("it loads");
}

#[test]
fn images_that_cannot_be_loaded_have_a_reason() {
    let Some(process) = start() else { return };
    let (image, memory) = pingpong(&process);
    for broken in [&[][..], b"no ELF file", &image[..image.len() / 2]] {
        let refused = memory.load(&process, broken);
        assert!(matches!(refused, Err(HookLoadError::NotEligible(_))), "{refused:?}");
    }
    for size in [0, 1 + (64 << 20), u32::MAX] {
        assert!(matches!(process.make_map("spin_test", size), Err(HookError::Refused(_))), "{size}");
    }
    assert!(matches!(process.make_map("no name", 8), Err(HookError::Refused(_))));
    let array: OwnedFd =
        ArrayMap::new("spin_test", 8).expect("a map").as_fd().try_clone_to_owned().expect("a descriptor");
    assert!(matches!(process.add_sockets(array.as_fd()), Err(HookError::Refused(_))));
    assert!(matches!(process.add_sockets(std::io::stderr().as_fd()), Err(HookError::Refused(_))));
}

#[test]
fn the_largest_map_is_shared() {
    let Some(process) = start() else { return };
    let (_, fd) = process.make_map("spin_test", 64 << 20).expect("a map");
    let again = fd.try_clone().expect("a descriptor");
    let [one, other] = [fd, again].map(|fd| Region::adopt(fd, 64 << 20).expect("a region"));
    one.write((64 << 20) - 3, b"end").expect("inside");
    let mut end = [0; 3];
    other.read((64 << 20) - 3, &mut end).expect("inside");
    assert_eq!(&end, b"end");
}

#[test]
fn a_region_of_a_map_has_the_bytes_of_the_map() {
    if !rustix::process::geteuid().is_root() {
        return spin_testing::skip("needs root");
    }
    let map = ArrayMap::new("spin_test", 5000).expect("a map");
    let region = Region::adopt(map.as_fd().try_clone_to_owned().expect("a descriptor"), 5000).expect("a region");
    region.write(4990, b"by region").expect("inside");
    let mut bytes = map.read().expect("readable");
    assert_eq!(&bytes[4990..4999], b"by region");
    bytes[..6].copy_from_slice(b"by map");
    map.write(&bytes).expect("writable");
    let mut start = [0; 6];
    region.read(0, &mut start).expect("inside");
    assert_eq!(&start, b"by map");
}
