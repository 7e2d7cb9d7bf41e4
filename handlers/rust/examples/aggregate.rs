//! Sums the 32-bit integers of a message's UDP datagrams and writes the sum to the start of host memory:
//! `handlers/aggregate` in Rust.
#![no_std]

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use spin_handler::{Task, Udp, handlers, packet};

handlers! { header: begin, payload: add, completion: finish }

/// Returns the message's sum: the word of its home cluster's scratchpad at its queue's index. `None`: the scratchpad is
/// too small.
fn sum_of<'t>(task: &Task<'t>) -> Option<&'t AtomicU32> {
    task.home_scratchpad().get(task.flow_id() as usize)
}

fn begin(task: &mut Task<'_>) {
    if let Some(sum) = sum_of(task) {
        sum.store(0, Relaxed);
    }
}

fn add(task: &mut Task<'_>) {
    let (Some(sum), Some(udp)) = (sum_of(task), Udp::parse(task.packet())) else { return };
    // The packet's sum is kept in a register, so a packet costs one atomic addition.
    sum.fetch_add(packet::words(udp.payload()).fold(0, u32::wrapping_add), Relaxed);
}

fn finish(task: &mut Task<'_>) {
    if let Some(sum) = sum_of(task) {
        task.host().write_u64(0, sum.load(Relaxed).into()).forget();
    }
}
