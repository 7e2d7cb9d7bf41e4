//! Answers every UDP datagram with its own payload: `handlers/examples/reply.c` in Rust.
#![no_std]

use spin_handler::{Task, Udp, handlers};

handlers! { payload: answer }

fn answer(task: &mut Task<'_>) {
    // In L2: the buffer it arrived in leaves again, without a copy.
    let Some(mut udp) = Udp::parse(task.frame()) else { return };
    if udp.is_unicast() {
        udp.swap();
        udp.reply();
    }
}
