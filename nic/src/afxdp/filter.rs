//! The XDP program and its maps.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libbpf_rs::libbpf_sys::{
    bpf_map_create_opts, bpf_map_delete_elem, bpf_map_update_elem, bpf_prog_test_run_opts, bpf_test_run_opts,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object};
use spin_abi::rules::{ExactKey, MAX_TESTS, RuleSet, Test};

use crate::bpf::{self, Aligned, map, program, refused, system};
use crate::error::NicError;
use crate::steering::{FlowSteering, check_rules};

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/filter.bpf.o")));

const KEY: [u8; 4] = 0_u32.to_ne_bytes();
/// Size of `struct table`: a count, then the tests.
const TABLE_LEN: usize = 4 + MAX_TESTS * size_of::<Test>();
const SET_RULES: &str = "give the XDP program its rules";
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

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
}

/// The XDP program in the kernel, without an interface; [`crate::AfXdp`] attaches it. Its first table is empty.
pub struct Filter {
    program: OwnedFd,
    generic: OwnedFd,
    pass: OwnedFd,
    decide: OwnedFd,
    rules: RuleMaps,
    /// Sets the rules once this process has given up the privileges to do so.
    delegate: OnceLock<Arc<dyn FlowSteering>>,
    sockets: MapHandle,
    counters: MapHandle,
}

/// The maps with the program's rules.
pub struct RuleMaps {
    /// The outer map, whose only entry is the table.
    tables: OwnedFd,
    /// The exact keys.
    keys: OwnedFd,
    /// The present rules.
    present: Mutex<Present>,
}

/// Rules in the maps.
#[derive(Default)]
struct Present {
    tests: Vec<Test>,
    keys: HashSet<ExactKey>,
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
        [self.rules.tables.as_fd(), self.rules.keys.as_fd()]
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
        })
    }

    /// Runs the decision of the program on one frame in the kernel, and returns whether the rules match. Counts and sends
    /// nothing.
    ///
    /// # Errors
    /// When the kernel refuses to run it: on frames below 14 bytes, or longer than about 3.5 KiB.
    pub fn test_run(&self, frame: &[u8]) -> Result<bool, NicError> {
        match self.run(self.decide.as_fd(), frame, 1)?.0 {
            XDP_REDIRECT => Ok(true),
            XDP_PASS => Ok(false),
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
        let length = u32::try_from(frame.len()).map_err(|error| NicError::system("run it", io::Error::other(error)))?;
        let mut options = bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: length,
            repeat: runs.cast_signed(),
            ..Default::default()
        };
        // SAFETY: `options` has the size it claims. `data_in` points at `data_size_in` readable bytes. All other pointers
        // are null with size 0, so the kernel writes to `options` alone.
        let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        if result < 0 {
            return Err(NicError::system("run the XDP program on a frame", io::Error::from_raw_os_error(-result)));
        }
        Ok((options.retval, options.duration))
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

impl RuleMaps {
    /// The rules of a program that has none yet. The maps are duplicates of [`Filter::rule_maps`].
    #[must_use]
    pub fn new([tables, keys]: [OwnedFd; 2]) -> Self {
        Self { tables, keys, present: Mutex::default() }
    }

    /// Makes `tests` the table. Waits until no CPU uses the old one, which takes about 10 ms (`maybe_wait_bpf_programs`,
    /// kernel/bpf/syscall.c).
    fn replace_table(&self, tests: &[Test]) -> Result<(), NicError> {
        let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
        let value_size = TABLE_LEN as u32;
        let table = MapHandle::create(MapType::Array, Some("spin_rules"), 4, value_size, 1, &options);
        let table = table.map_err(|error| system(SET_RULES, &error))?;
        table.update(&KEY, &encode(tests), MapFlags::ANY).map_err(|error| system(SET_RULES, &error))?;
        let value = table.as_fd().as_raw_fd().to_ne_bytes();
        let (map, key, value) = (self.tables.as_raw_fd(), KEY.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: key and value of this map have four bytes each, which live during the call.
        done(unsafe { bpf_map_update_elem(map, key, value, 0) })
    }

    fn insert(&self, key: ExactKey) -> Result<(), NicError> {
        let (key, value) = (key.to_bytes(), [1_u8]);
        let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: keys of this map have the 20 bytes of `to_bytes`, and values one byte. They live during the call.
        done(unsafe { bpf_map_update_elem(self.keys.as_raw_fd(), key, value, 0) })
    }

    fn delete(&self, key: ExactKey) -> Result<(), NicError> {
        let key = key.to_bytes();
        // SAFETY: keys of this map have the 20 bytes of `to_bytes`, which live during the call.
        done(unsafe { bpf_map_delete_elem(self.keys.as_raw_fd(), key.as_ptr().cast()) })
    }

    /// Inserts keys: all of them, or none.
    fn insert_all(&self, present: &mut HashSet<ExactKey>, new: &[ExactKey]) -> Result<(), NicError> {
        for (index, &key) in new.iter().enumerate() {
            if let Err(error) = self.insert(key) {
                self.delete_all(present, &new[..index])?;
                return Err(error);
            }
            present.insert(key);
        }
        Ok(())
    }

    fn delete_all(&self, present: &mut HashSet<ExactKey>, old: &[ExactKey]) -> Result<(), NicError> {
        old.iter().try_for_each(|&key| {
            self.delete(key)?;
            present.remove(&key);
            Ok(())
        })
    }
}

impl FlowSteering for RuleMaps {
    /// New keys come before the new table, and old keys go after it. A frame that was decided by old table and keys has ended before an
    /// old key goes, because the change of the table waits for it. Thus each frame is decided by the old or by the new rules. A change
    /// that only adds or only removes keys needs no new table, and does not wait.
    fn set_rules(&self, rules: &RuleSet) -> Result<(), NicError> {
        check_rules(rules)?;
        // After a panic, `present` still has the rules of the last step that was done.
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let Present { tests, keys } = &mut *present;
        let then: HashSet<ExactKey> = rules.keys.iter().copied().collect();
        let new: Vec<_> = then.difference(keys).copied().collect();
        let old: Vec<_> = keys.difference(&then).copied().collect();
        self.insert_all(keys, &new)?;
        if *tests != rules.tests || !new.is_empty() && !old.is_empty() {
            if let Err(error) = self.replace_table(&rules.tests) {
                self.delete_all(keys, &new)?;
                return Err(error);
            }
            tests.clone_from(&rules.tests);
        }
        self.delete_all(keys, &old)
    }
}

/// The result of a system call on a map.
fn done(result: i32) -> Result<(), NicError> {
    if result < 0 { Err(NicError::system(SET_RULES, io::Error::from_raw_os_error(-result))) } else { Ok(()) }
}

/// `struct table` of the C source.
fn encode(tests: &[Test]) -> Vec<u8> {
    let mut bytes = vec![0; TABLE_LEN];
    // At most MAX_TESTS, as `check_rules` ensures.
    bytes[..4].copy_from_slice(&(tests.len() as u32).to_ne_bytes());
    for (slot, test) in bytes[4..].chunks_exact_mut(size_of::<Test>()).zip(tests) {
        slot.copy_from_slice(&test.to_bytes());
    }
    bytes
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use libbpf_rs::libbpf_sys::bpf_map_lookup_elem;
    use spin_abi::rules::{Base, END_OF_RULE, RuleSet, Test};

    use super::{Filter, FlowSteering, KEY, TABLE_LEN, encode};

    #[test]
    fn a_table_is_a_count_and_its_tests() {
        let test = Test { base: Base::Kind, flags: END_OF_RULE, offset: -2, mask: 3, min: 4, max: 5 };
        let bytes = encode(&[test, test]);
        assert_eq!((bytes.len(), &bytes[..4]), (TABLE_LEN, &2_u32.to_ne_bytes()[..]));
        assert_eq!((&bytes[4..20], &bytes[20..36]), (&test.to_bytes()[..], &test.to_bytes()[..]));
        assert!(bytes[36..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn equal_rules_are_not_set_again() {
        if !rustix::process::geteuid().is_root() {
            spin_testing::skip("needs root");
            return;
        }
        let filter = Filter::load().expect("the kernel accepts it");
        let test = Test { base: Base::Kind, flags: END_OF_RULE, offset: 0, mask: 0, min: 0, max: 0 };
        // The id of the map that holds the table.
        let table = |tests: &[Test]| {
            filter.set_rules(&RuleSet::list(tests)).expect("fine rules");
            let mut id = [0_u8; 4];
            let (key, value) = (KEY.as_ptr().cast(), id.as_mut_ptr().cast());
            // SAFETY: key and value of this map have four bytes each.
            let result = unsafe { bpf_map_lookup_elem(filter.rule_maps()[0].as_raw_fd(), key, value) };
            assert_eq!(result, 0);
            id
        };
        let (first, again, other) = (table(&[test]), table(&[test]), table(&[]));
        assert_eq!(first, again);
        assert_ne!(again, other);
        assert_ne!(table(&[test]), other);
    }
}
