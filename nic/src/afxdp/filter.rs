//! The XDP program and its maps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use spin_abi::rules::{MAX_PROGRAMS, RuleSet, Target};

use super::rule_maps::RuleMaps;
use crate::bpf::{self, Aligned, map, program, refused, system};
use crate::error::NicError;
use crate::hook::sys::test_run;
use crate::steering::FlowSteering;

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/filter.bpf.o")));

const KEY: [u8; 4] = 0_u32.to_ne_bytes();

/// The counters of the program, summed over all CPUs: `struct counters` of the C source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCounters {
    /// Frames passed to the kernel, including `unserved` ones.
    pub passed: u64,
    /// Bytes of the passed frames.
    pub passed_bytes: u64,
    /// Frames redirected to a socket.
    pub redirected: u64,
    /// Bytes of the redirected frames.
    pub redirected_bytes: u64,
    /// Frames that matched on a queue without a socket.
    pub unserved: u64,
    /// Frames for which the program called the program of a handler.
    pub called: u64,
}

/// The XDP program in the kernel, without an interface; [`crate::AfXdp`] attaches it. Its first table is empty.
pub struct Filter {
    program: OwnedFd,
    generic: OwnedFd,
    pass: OwnedFd,
    decide: OwnedFd,
    rules: RuleMaps,
    programs: MapHandle,
    /// Sets the rules once this process has given up the privileges to do so.
    delegate: OnceLock<Arc<dyn FlowSteering>>,
    sockets: MapHandle,
    counters: MapHandle,
}

impl Filter {
    /// Loads the program, without an interface.
    ///
    /// # Errors
    /// [`NicError::Privileges`], or [`NicError::Program`] when the kernel refuses it.
    pub fn load() -> Result<Self, NicError> {
        Self::load_for(1)
    }

    /// Loads the program for an interface of `queues` queues.
    pub(super) fn load_for(queues: u32) -> Result<Self, NicError> {
        let object = load_object(queues).map_err(|error| refused(&error))?;
        let parts = || {
            Ok(Self {
                program: program(&object, "spin_filter")?,
                generic: program(&object, "spin_filter_generic")?,
                pass: program(&object, "spin_pass")?,
                decide: program(&object, "spin_decide")?,
                rules: RuleMaps::new([
                    map(&object, "rules")?.as_fd().try_clone_to_owned()?,
                    map(&object, "keys")?.as_fd().try_clone_to_owned()?,
                ]),
                programs: map(&object, "programs")?,
                delegate: OnceLock::new(),
                sockets: map(&object, "sockets")?,
                counters: map(&object, "counters")?,
            })
        };
        parts().map_err(|error: libbpf_rs::Error| refused(&error))
    }

    /// The program for native mode.
    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// The program for generic mode.
    pub(super) fn generic(&self) -> BorrowedFd<'_> {
        self.generic.as_fd()
    }

    /// The program that passes all frames: see `kernel_pass`.
    pub(super) fn pass_program(&self) -> BorrowedFd<'_> {
        self.pass.as_fd()
    }

    /// The maps of the rules, for a process that sets them in place of this one.
    #[must_use]
    pub fn rule_maps(&self) -> [BorrowedFd<'_>; 2] {
        self.rules.maps().map(AsFd::as_fd)
    }

    /// The map of programs (`BPF_MAP_TYPE_PROG_ARRAY`), by index in [`Target::Program`].
    #[must_use]
    pub fn programs(&self) -> BorrowedFd<'_> {
        self.programs.as_fd()
    }

    /// The map of sockets (`BPF_MAP_TYPE_XSKMAP`), by queue.
    #[must_use]
    pub fn sockets(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }

    /// Has `delegate` set the rules from now on.
    pub fn delegate(&self, delegate: Arc<dyn FlowSteering>) {
        // A second delegate would set the same map.
        let _ = self.delegate.set(delegate);
    }

    /// Directs matched frames of `queue` to `socket`.
    pub(super) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), NicError> {
        let update = self.sockets.update(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes(), MapFlags::ANY);
        update.map_err(|error| system("put a socket in the XDP program's map", &error))
    }

    /// The counters since the program was loaded.
    ///
    /// # Errors
    /// When the kernel refuses to give them.
    pub fn counters(&self) -> Result<FilterCounters, NicError> {
        let cpus = self.counters.lookup_percpu(&KEY, MapFlags::ANY);
        let cpus = cpus.map_err(|error| system("read the XDP program's counters", &error))?.unwrap_or_default();
        let sum = |index: usize| {
            let words = cpus.iter().filter_map(|cpu| cpu.get(index * 8..index * 8 + 8)?.try_into().ok());
            words.map(u64::from_ne_bytes).sum()
        };
        Ok(FilterCounters {
            passed: sum(0),
            passed_bytes: sum(1),
            redirected: sum(2),
            redirected_bytes: sum(3),
            unserved: sum(4),
            called: sum(5),
        })
    }

    /// Runs the decision of the program on one frame in the kernel, and returns the frame's target, if the rules match it. Counts and
    /// sends nothing.
    ///
    /// # Errors
    /// When the kernel refuses to run it: on frames below 14 bytes, or longer than a page with the kernel's data.
    pub fn test_run(&self, frame: &[u8]) -> Result<Option<Target>, NicError> {
        match self.run(self.decide.as_fd(), frame, 1)?.0 {
            0 => Ok(None),
            1 => Ok(Some(Target::UserSpace)),
            more if more - 2 < MAX_PROGRAMS => Ok(Some(Target::Program((more - 2) as u16))),
            other => Err(NicError::system("run the XDP program", io::Error::other(format!("it returned {other}")))),
        }
    }

    /// Runs the decision of the program on one frame `runs` times. Returns the average time.
    ///
    /// # Errors
    /// As [`Filter::test_run`].
    pub fn test_time(&self, frame: &[u8], runs: u32) -> Result<Duration, NicError> {
        Ok(Duration::from_nanos(self.run(self.decide.as_fd(), frame, runs)?.1.into()))
    }

    /// The program's result, and the nanoseconds of a run.
    fn run(&self, program: BorrowedFd<'_>, frame: &[u8], runs: u32) -> Result<(u32, u32), NicError> {
        let run = test_run(program, frame, &mut [], runs);
        let (result, _, nanoseconds) =
            run.map_err(|error| NicError::system("run the XDP program on a frame", error))?;
        Ok((result, nanoseconds))
    }
}

impl FlowSteering for Filter {
    fn set_rules(&self, rules: &RuleSet) -> Result<(), NicError> {
        match self.delegate.get() {
            Some(delegate) => delegate.set_rules(rules),
            None => self.rules.set_rules(rules),
        }
    }
}

fn load_object(queues: u32) -> libbpf_rs::Result<Object> {
    let mut object = bpf::open("spin_filter", &OBJECT.0)?;
    for mut map in object.maps_mut() {
        if map.name() == "sockets" {
            map.set_max_entries(queues)?;
        }
    }
    object.load()
}
