//! Recording a latency takes no memory. A program of its own, since it counts all that a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use spin_engine::latency::Latencies;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is left to the system's allocator; counting allocates nothing, for the counter is initialised statically.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn recording_takes_no_memory() {
    let before_any = ALLOCATIONS.get();
    let mut latencies = Latencies::default();
    let before = ALLOCATIONS.get();
    assert!(before > before_any, "allocations are counted");
    let mut nanoseconds = 1_u64;
    while let Some(longer) = nanoseconds.checked_mul(3) {
        let elapsed = Duration::from_nanos(nanoseconds);
        latencies.record_total(64, elapsed);
        latencies.sample_queueing(elapsed);
        latencies.sample_handler(elapsed);
        nanoseconds = longer;
    }
    latencies.record_total(1 << 62, Duration::MAX);
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!(latencies.infos()[1].count, 40, "3^0 to 3^39 ns");
}
