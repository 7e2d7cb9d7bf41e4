//! The BPF programs of test traffic, and their maps.

use std::fs::metadata;
use std::os::unix::fs::MetadataExt;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

use super::pattern::Pattern;
use crate::bpf::{self, Aligned, map, refused, system};
use crate::error::NicError;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/traffic.bpf.o")));

const KEY: [u8; 4] = 0_u32.to_ne_bytes();

/// Loads the named programs.
pub(super) fn load(programs: &[&str]) -> Result<Object, NicError> {
    let open = || {
        let mut object = bpf::open("spin_traffic", &OBJECT.0)?;
        for mut program in object.progs_mut() {
            let wanted = programs.iter().any(|name| program.name() == *name);
            program.set_autoload(wanted);
        }
        object.load()
    };
    open().map_err(|error| refused(&error))
}

/// Gives the programs the constants of a pattern, for frames that leave by an interface.
pub(super) fn set_up(object: &Object, pattern: &Pattern, interface: u32) -> Result<(), NicError> {
    let namespace =
        metadata("/proc/thread-self/ns/net").map_err(|error| NicError::system("find this namespace", error))?;
    // The kernel numbers namespaces with 32 bits (`struct ns_common`).
    store(object, "settings", &KEY, &pattern.settings(interface, namespace.ino() as u32))
}

/// Fills the first entries of a table.
pub(super) fn fill(object: &Object, name: &str, values: impl Iterator<Item = u32>) -> Result<(), NicError> {
    for (index, value) in (0_u32..).zip(values) {
        store(object, name, &index.to_ne_bytes(), &value.to_ne_bytes())?;
    }
    Ok(())
}

fn store(object: &Object, name: &str, key: &[u8], value: &[u8]) -> Result<(), NicError> {
    let stored = map(object, name).and_then(|map| map.update(key, value, MapFlags::ANY));
    stored.map_err(|error| system("set up the traffic program", &error))
}

/// Which numbers are counted: `counts` of the C source.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    /// Received frames of the run.
    Received = 0,
    /// Reflected frames.
    Reflected = 1,
    /// Sent frames that the interface accepted.
    Accepted = 2,
}

/// Packets and bytes counted by all CPUs.
pub(super) fn read_counts(counts: &MapHandle, which: Counted) -> Result<[u64; 2], NicError> {
    let cpus = counts.lookup_percpu(&(which as u32).to_ne_bytes(), MapFlags::ANY);
    let cpus = cpus.map_err(|error| system("read the traffic program's counters", &error))?.unwrap_or_default();
    let sum = |index: usize| {
        let words = cpus.iter().filter_map(|cpu| cpu.get(index * 8..index * 8 + 8)?.try_into().ok());
        words.map(u64::from_ne_bytes).sum()
    };
    Ok([sum(0), sum(1)])
}

/// Number of frames that the generator wrote: the first field of `struct state`.
pub(super) fn read_sequence(state: &MapHandle) -> Result<u64, NicError> {
    let state = state.lookup(&KEY, MapFlags::ANY).map_err(|error| system("read the generator's state", &error))?;
    Ok(state.as_deref().and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
}
