//! Threads of an engine without a daemon.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use spin_abi::control::{Engine as Kind, Schedule};
use spin_abi::map::Machine;
use spin_engine::context::loader::Loader;
use spin_engine::cores::SharedConfig;
use spin_engine::settings::{Idle, Sizes};

/// The shared configuration of all threads. They receive from the start.
pub fn all_threads(idle: Idle) -> SharedConfig {
    SharedConfig {
        loader: Arc::new(Loader::new(Machine::PSPIN, Kind::Jit)),
        sizes: Sizes::default(),
        schedule: Schedule::default(),
        idle,
        go: Arc::new(AtomicBool::new(true)),
        stop: Arc::default(),
        start: Instant::now(),
        ended: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor")),
    }
}
