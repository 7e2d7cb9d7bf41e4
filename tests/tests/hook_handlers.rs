//! Handlers of the SDK and the benches as eBPF programs in the kernel: which are eligible, load, and answer as expected.

use std::os::fd::AsFd;
use std::time::Instant;

use hpu_vm::bpf::layout::{Description, Maps, Range, Record};
use hpu_vm::bpf::{Ineligible, Layout, Options, Program as Translated, Source};
use hpu_vm::{Image, Kind, RegionKind};
use spin_abi::map::Machine;
use spin_nic::hook::{ArrayMap, LoadError, LoadOptions, Program};

const MACHINE: Machine = Machine::PSPIN;
const PROCESSORS: u32 = 32;
const HANDLER_MEM: u32 = 0x10_0000;

/// A handler in the kernel.
struct Loaded {
    program: Program,
    slots: ArrayMap,
    _maps: Vec<ArrayMap>,
}

fn array(name: &str, bytes: &[u8]) -> ArrayMap {
    let map = ArrayMap::new(name, u32::try_from(bytes.len()).expect("short")).expect("a map");
    map.write(bytes).expect("written");
    map
}

fn load(elf: &[u8], options: Options) -> Result<Loaded, String> {
    let image = Image::load(elf, &MACHINE).expect("an image");
    let entry = image.handler(Kind::Payload).ok_or("no payload handler")?;
    let mut handler_mem = vec![0; HANDLER_MEM as usize];
    let mut ranges =
        vec![Range { base: MACHINE.handler_mem_base, len: HANDLER_MEM, writable: true, map: Maps::MEMORY, offset: 0 }];
    let mut contents = Vec::new();
    for (base, kind, writable, bytes) in image.segments() {
        if kind == RegionKind::HandlerMemory {
            let at = (base - MACHINE.handler_mem_base) as usize;
            handler_mem[at..at + bytes.len()].copy_from_slice(bytes);
            continue;
        }
        let map = Maps::MEMORY + 1 + u32::try_from(contents.len()).expect("few");
        let len = u32::try_from(bytes.len()).expect("short");
        ranges.push(Range { base, len, writable, map, offset: 0 });
        contents.push(bytes.to_vec());
    }
    let description = Description {
        handler_mem: (image.handler_mem_end().next_multiple_of(4096), 0x8_0000),
        scratchpads: [(0, 0); 4],
        host: (0, 0),
    };
    let layout = Layout {
        machine: MACHINE,
        hpu: (0, 0),
        first_hpu: 0,
        processors: PROCESSORS,
        ranges,
        host: None,
        own_task: false,
        replies: None,
    };
    let taken = image.addresses_taken();
    let source = Source { code: image.code(), entry, taken: &taken };
    let begun = Instant::now();
    let translated =
        Translated::new(source, &layout, options).map_err(|reason: Ineligible| format!("not eligible: {reason}"))?;
    let translation = begun.elapsed();
    let mut configuration = vec![0; 16];
    configuration[..8].copy_from_slice(&1_000_000_u64.to_ne_bytes());
    let mut maps = vec![array("config", &configuration)];
    let slots = array("slots", &layout.slots(&description));
    maps.push(array("handler", &handler_mem));
    maps.extend(contents.iter().map(|bytes| array("segment", bytes)));
    let mut descriptors: Vec<_> = maps.iter().map(AsFd::as_fd).collect();
    descriptors.insert(1, slots.as_fd());
    let instructions: Vec<[u8; 8]> = translated.insns().encode().into_iter().map(|insn| insn.bytes()).collect();
    let begun = Instant::now();
    let loaded = Program::load(&instructions, &descriptors, LoadOptions { name: "handler", full_log: false });
    let program = loaded.map_err(|error| match error {
        LoadError::Refused(refusal) => format!("refused: {} ({:?} processed)", refusal.message, refusal.processed),
        other => other.to_string(),
    })?;
    println!(
        "  {} guest instructions, {} of eBPF, {:?} processed, L1 {:?}, translated in {translation:?}, loaded in {:?}",
        translated.guest_instructions(),
        instructions.len(),
        program.processed(),
        translated.l1_packet(),
        begun.elapsed()
    );
    Ok(Loaded { program, slots, _maps: maps })
}

impl Loaded {
    fn record(&self) -> Option<Record> {
        let slots = self.slots.read().expect("read");
        (0..PROCESSORS).find_map(|processor| Record::read(&slots, processor))
    }
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
fn handlers_load_and_answer() {
    for name in ["udp_pingpong", "icmp_echo", "filtering", "kvstore", "strided_ddt", "aggregate", "reduce", "histogram"]
    {
        println!("{name}:");
        let image = spin_handlers::image(name, &[]);
        for (opaque, forgetful) in [(false, false), (true, false), (false, true), (true, true)] {
            println!(" opaque {opaque}, forgetful {forgetful}");
            match load(&image, Options { opaque, forgetful, ..Options::default() }) {
                Err(reason) => println!("  {reason}"),
                Ok(loaded) => {
                    for len in [64, 512, 1500] {
                        let run = loaded.program.test_run(&udp(len), 1).expect("a run");
                        let record = loaded.record();
                        let timed = loaded.program.test_run(&udp(len), 100_000).expect("a run");
                        println!("  {len}: action {}, {record:?}, {:?}", run.action, timed.duration);
                    }
                }
            }
        }
    }
}
