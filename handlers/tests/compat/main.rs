//! Handlers for PsPIN and FPsPIN, written with these machines' published names, in both ABIs and by both compilers:
//! built without warnings and run by the engine.
#![allow(missing_docs, reason = "a test")]

#[path = "../../../engine/tests/common/mod.rs"]
mod common;

mod api;
mod commands;
mod contract;
mod host;
mod layout;
mod original;
mod prints;
mod reservation;
mod stress;
mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use common::{Kind, Lab};
use spin_abi::control::{Abi, Install};
use spin_abi::map::Machine;
use spin_handlers::{folder, try_build};

/// A machine for which handlers exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub abi: Abi,
    pub machine: Machine,
}

pub const PSPIN: Target = Target { abi: Abi::Pspin, machine: Machine::PSPIN };
pub const FPSPIN: Target = Target { abi: Abi::Fpspin, machine: Machine::FPSPIN };

/// Compilers that build the handlers.
pub const COMPILERS: [&str; 2] = ["clang", "gcc"];

/// Returns the source path of a handler in this folder.
pub fn source(name: &str) -> PathBuf {
    folder().join("tests/compat").join(name)
}

/// Builds a handler of this folder once per set of options; warnings are errors.
pub fn build(target: Target, compiler: &str, name: &str, options: &[&str]) -> Arc<[u8]> {
    static KNOWN: Mutex<BTreeMap<String, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
    let abi = target.abi.to_string();
    let all = [&["--abi", &abi, "--compiler", compiler, "-Werror"], options].concat();
    let key = format!("{name} {all:?}");
    // Poisoning is ignored: a handler that does not compile fails every test that needs it.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let image = known.entry(key).or_insert_with(|| {
        let built = try_build(&[&source(name)], &all);
        built.unwrap_or_else(|error| panic!("{name}, {abi}, {compiler}: {error}")).into()
    });
    image.clone()
}

impl Target {
    pub fn lab(self, kind: Kind) -> Lab {
        let mut lab = Lab::with(kind, self.machine, 256);
        // A long limit, so that no test depends on the machine's load.
        lab.limits.watchdog_us = 20_000_000;
        lab
    }

    /// Returns an install request with ample memory.
    pub fn install(self) -> Install {
        Install {
            abi: self.abi,
            rules: vec!["udp dport 9999".into()],
            host_mem: 0x4_0000,
            scratchpad: 0x4000,
            ..Install::default()
        }
    }
}

/// Runs a test for each ABI, compiler and engine.
pub fn everywhere(test: impl Fn(Target, &str, Kind)) {
    for target in [PSPIN, FPSPIN] {
        for compiler in COMPILERS {
            for kind in [Kind::Interp, Kind::Jit, Kind::Check] {
                test(target, compiler, kind);
            }
        }
    }
}

/// Reads a word of host memory.
pub fn host_word(host: &Arc<spin_shm::Region>, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    host.read(offset, &mut bytes).expect("inside");
    u32::from_le_bytes(bytes)
}
