//! Answers every UDP datagram with its own payload: `handlers/examples/reply.c` in Rust.
#![no_std]

use spin_handler::{Task, Udp, handlers};

handlers! { payload: answer }

fn answer(task: &mut Task<'_>) {
    // The L2 buffer is sent as it is, without a copy.
    let Some(mut udp) = Udp::parse(task.frame()) else { return };
    if udp.is_unicast() {
        udp.swap();
        udp.reply();
    }
}
