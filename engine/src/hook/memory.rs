//! Guest addresses of a program's maps.

use hpu_vm::bpf::Layout;
use hpu_vm::bpf::layout::{Description, Maps, Range};
use spin_abi::map::{Machine, PAGE};
use spin_abi::unit::UnitIndex;
use spin_pspin::hpu::memory::{ContextMemory, ImageMemory, MappedBytes};

/// Maps of the handler's memory: the image's, then the context's own.
const IMAGE: u32 = Maps::MEMORY;
const CONTEXT: u32 = Maps::MEMORY + 1;
/// Map of the queue for commands, if there is one.
pub const QUEUE: u32 = Maps::MEMORY + 2;

/// The memory of a handler for its program, with no processors as yet. With page checks, ranges extend to the ends of their pages, as in user space.
/// `first_hpu`, `first_flow`: the numbers that user space does not use begin there.
#[must_use]
pub fn layout(
    machine: &Machine,
    image: &ImageMemory,
    memory: &ContextMemory,
    whole_pages: bool,
    (first_hpu, first_flow): (u32, u32),
) -> Layout {
    let range = |(base, bytes): (u32, MappedBytes), map: u32| {
        let len = if whole_pages { (base + bytes.len).next_multiple_of(PAGE) - base } else { bytes.len };
        let offset = u32::try_from(bytes.offset).unwrap_or(u32::MAX);
        Range { base, len, writable: bytes.writable, map, offset }
    };
    let own = memory.shared_ranges().map(|part| range(part, CONTEXT));
    let parts = image.ranges_for(memory.handler().0).map(|part| range(part, IMAGE));
    Layout {
        machine: *machine,
        hpu: (0, 0),
        first_hpu,
        first_flow,
        processors: 0,
        ranges: own.chain(parts).collect(),
        host_queue: None,
        own_task: false,
        replies: None,
    }
}

/// Content of the task registers. `host`: address and size of host memory.
#[must_use]
pub fn description(memory: &ContextMemory, host: (u64, u32), unit: UnitIndex) -> Description {
    Description { handler_mem: memory.handler(), scratchpads: memory.scratchpads(), host, unit: unit.words() }
}
