//! The maps with the rules of the XDP program.
#![allow(unsafe_code, reason = "the keys and values of maps are passed by pointer")]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::libbpf_sys::{
    BPF_MAP_TYPE_ARRAY_OF_MAPS, BPF_MAP_TYPE_HASH, bpf_map_create_opts, bpf_map_delete_elem, bpf_map_update_elem,
};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use spin_abi::rules::{ExactKey, KeyRule, MAX_TESTS, RuleSet, Target, Test};

use crate::bpf::system;
use crate::error::NicError;
use crate::hook::sys::map_info;
use crate::steering::{FlowSteering, check_rules};

const KEY: [u8; 4] = 0_u32.to_ne_bytes();
/// Size of `struct table`: a count, the tests, and their targets.
const TABLE_LEN: usize = 4 + MAX_TESTS * (size_of::<Test>() + 4);
/// Bytes of a key, and of its value: [`ExactKey::to_bytes`], [`KeyRule::to_bytes`].
const KEY_LEN: u32 = 20;
const VALUE_LEN: u32 = 8;
const SET_RULES: &str = "give the XDP program its rules";

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
    targets: Vec<Target>,
    keys: HashMap<ExactKey, KeyRule>,
}

/// Differences between the present keys and other ones.
struct KeyChanges {
    /// Keys to insert, with user space as their target for now.
    new: Vec<KeyRule>,
    /// Present keys whose frames must no longer go where they go, with user space as their target.
    withdrawn: Vec<KeyRule>,
    /// Keys to which something else applies in the end than at present, or if they are new, than that their target is user space.
    changed: Vec<KeyRule>,
    old: Vec<ExactKey>,
}

impl RuleMaps {
    /// The rules of a program that has none yet. The maps are those of [`Filter::rule_maps`](super::Filter::rule_maps), of another process
    /// that is not trusted.
    ///
    /// # Errors
    /// They are other maps. The kernel would read behind the keys and values for those.
    pub fn checked(maps: [OwnedFd; 2]) -> Result<Self, NicError> {
        let of = |map: &OwnedFd| -> io::Result<_> {
            let info = map_info(map.as_fd())?;
            Ok((info.type_, info.key_size, info.value_size))
        };
        let [tables, keys] = &maps;
        let found = of(tables).and_then(|tables| Ok([tables, of(keys)?]));
        let found = found.map_err(|error| NicError::system(SET_RULES, error))?;
        if found != [(BPF_MAP_TYPE_ARRAY_OF_MAPS, 4, 4), (BPF_MAP_TYPE_HASH, KEY_LEN, VALUE_LEN)] {
            return Err(NicError::system(SET_RULES, io::Error::other("the maps are not those of rules")));
        }
        Ok(Self::new(maps))
    }

    /// The rules of a program that has none yet, with its maps.
    pub(super) fn new([tables, keys]: [OwnedFd; 2]) -> Self {
        Self { tables, keys, present: Mutex::default() }
    }

    /// The map of tables, and that of keys.
    pub(super) fn maps(&self) -> [&OwnedFd; 2] {
        [&self.tables, &self.keys]
    }

    /// Makes `tests` the table. Waits until no CPU uses the old one, which takes about 10 ms (`maybe_wait_bpf_programs`,
    /// kernel/bpf/syscall.c).
    fn replace_table(&self, tests: &[Test], targets: &[Target]) -> Result<(), NicError> {
        let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as u64, ..Default::default() };
        let value_size = TABLE_LEN as u32;
        let table = MapHandle::create(MapType::Array, Some("spin_rules"), 4, value_size, 1, &options);
        let table = table.map_err(|error| system(SET_RULES, &error))?;
        table.update(&KEY, &encode(tests, targets), MapFlags::ANY).map_err(|error| system(SET_RULES, &error))?;
        let value = table.as_fd().as_raw_fd().to_ne_bytes();
        let (map, key, value) = (self.tables.as_raw_fd(), KEY.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: key and value of this map have four bytes each, which live during the call.
        done(unsafe { bpf_map_update_elem(map, key, value, 0) })
    }

    fn put(&self, rule: KeyRule) -> Result<(), NicError> {
        let (key, value) = (rule.key.to_bytes(), rule.to_bytes());
        let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: keys of this map have the 20 bytes of `to_bytes`, and values the eight. They live during the call.
        done(unsafe { bpf_map_update_elem(self.keys.as_raw_fd(), key, value, 0) })
    }

    fn delete(&self, key: ExactKey) -> Result<(), NicError> {
        let key = key.to_bytes();
        // SAFETY: keys of this map have the 20 bytes of `to_bytes`, which live during the call.
        done(unsafe { bpf_map_delete_elem(self.keys.as_raw_fd(), key.as_ptr().cast()) })
    }

    /// Inserts keys: all of them, or none.
    fn insert_all(&self, present: &mut HashMap<ExactKey, KeyRule>, new: &[KeyRule]) -> Result<(), NicError> {
        let inserted = self.put_all(present, new);
        if inserted.is_err() {
            self.delete_new(present, new)?;
        }
        inserted
    }

    /// Sets keys, until one is refused.
    fn put_all(&self, present: &mut HashMap<ExactKey, KeyRule>, rules: &[KeyRule]) -> Result<(), NicError> {
        rules.iter().try_for_each(|rule| {
            self.put(*rule)?;
            present.insert(rule.key, *rule);
            Ok(())
        })
    }

    /// Deletes those of the `new` keys that are there.
    fn delete_new(&self, present: &mut HashMap<ExactKey, KeyRule>, new: &[KeyRule]) -> Result<(), NicError> {
        let there: Vec<_> = new.iter().map(|rule| rule.key).filter(|key| present.contains_key(key)).collect();
        self.delete_all(present, &there)
    }

    fn delete_all(&self, present: &mut HashMap<ExactKey, KeyRule>, old: &[ExactKey]) -> Result<(), NicError> {
        old.iter().try_for_each(|&key| {
            self.delete(key)?;
            present.remove(&key);
            Ok(())
        })
    }
}

impl KeyChanges {
    fn new(present: &HashMap<ExactKey, KeyRule>, rules: &[KeyRule]) -> Self {
        let then: HashMap<ExactKey, KeyRule> = rules.iter().map(|rule| (rule.key, *rule)).collect();
        let is_withdrawn =
            |rule: &&KeyRule| **rule != KeyRule::user_space(rule.key) && then.get(&rule.key) != Some(rule);
        let to_user_space = |key: &ExactKey| KeyRule::user_space(*key);
        let at_first = |key: &ExactKey| present.get(key).copied().unwrap_or_else(|| KeyRule::user_space(*key));
        Self {
            new: then.keys().filter(|key| !present.contains_key(key)).map(to_user_space).collect(),
            withdrawn: present.values().filter(is_withdrawn).map(|rule| to_user_space(&rule.key)).collect(),
            changed: then.values().filter(|rule| **rule != at_first(&rule.key)).copied().collect(),
            old: present.keys().filter(|key| !then.contains_key(key)).copied().collect(),
        }
    }
}

impl FlowSteering for RuleMaps {
    /// New keys come before the new table, and old keys go after it. A frame that was decided by old table and keys has ended before an
    /// old key goes, because the change of the table waits for it. Thus each frame is decided by the old or by the new rules. A change
    /// that only adds or only removes keys of user space needs no new table, and does not wait.
    ///
    /// If the list changes, frames of keys whose target changes go to user space meanwhile, which knows old and new rules: what a key says
    /// of the list is true of one list only. When this returns, no frame is in a program to which the rules no longer lead.
    fn set_rules(&self, rules: &RuleSet) -> Result<(), NicError> {
        check_rules(rules)?;
        // After a panic, `present` still has the rules of the last step that was done.
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let Present { tests, targets, keys } = &mut *present;
        let KeyChanges { new, withdrawn, changed, old } = KeyChanges::new(keys, &rules.keys);
        let wait = || self.replace_table(&rules.tests, &rules.targets);
        if *tests == rules.tests && *targets == rules.targets {
            self.insert_all(keys, &new)?;
            self.put_all(keys, &changed)?;
            if !new.is_empty() && !old.is_empty() {
                wait()?;
            }
            self.delete_all(keys, &old)?;
            return if withdrawn.is_empty() { Ok(()) } else { wait() };
        }
        self.put_all(keys, &withdrawn)?;
        self.insert_all(keys, &new)?;
        if let Err(error) = wait() {
            self.delete_new(keys, &new)?;
            return Err(error);
        }
        tests.clone_from(&rules.tests);
        targets.clone_from(&rules.targets);
        self.put_all(keys, &changed)?;
        self.delete_all(keys, &old)
    }
}

/// The result of a system call on a map.
fn done(result: i32) -> Result<(), NicError> {
    if result < 0 { Err(NicError::system(SET_RULES, io::Error::from_raw_os_error(-result))) } else { Ok(()) }
}

/// `struct table` of the C source.
fn encode(tests: &[Test], targets: &[Target]) -> Vec<u8> {
    let mut bytes = vec![0; TABLE_LEN];
    // At most MAX_TESTS, as `check_rules` ensures.
    bytes[..4].copy_from_slice(&(tests.len() as u32).to_ne_bytes());
    let (slots, numbers) = bytes[4..].split_at_mut(MAX_TESTS * size_of::<Test>());
    for (slot, test) in slots.chunks_exact_mut(size_of::<Test>()).zip(tests) {
        slot.copy_from_slice(&test.to_bytes());
    }
    for (slot, target) in numbers.chunks_exact_mut(4).zip(targets) {
        slot.copy_from_slice(&target.number().to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use libbpf_rs::libbpf_sys::bpf_map_lookup_elem;
    use spin_abi::rules::{Base, END_OF_RULE, ExactKey, KeyRule, MAX_TESTS, RuleSet, Target, Test};

    use super::{FlowSteering, KEY, TABLE_LEN, encode};
    use crate::Filter;

    const TEST: Test = Test { base: Base::Kind, flags: END_OF_RULE, offset: -2, mask: 3, min: 4, max: 5 };

    #[test]
    fn a_table_is_a_count_and_its_tests_and_their_targets() {
        let bytes = encode(&[TEST, TEST], &[Target::UserSpace, Target::Program(6)]);
        assert_eq!((bytes.len(), &bytes[..4]), (TABLE_LEN, &2_u32.to_ne_bytes()[..]));
        assert_eq!((&bytes[4..20], &bytes[20..36]), (&TEST.to_bytes()[..], &TEST.to_bytes()[..]));
        let (tests, targets) = bytes[36..].split_at(16 * (MAX_TESTS - 2));
        assert!(tests.iter().all(|&byte| byte == 0));
        assert_eq!((&targets[..4], &targets[4..8]), (&[0; 4][..], &7_u32.to_ne_bytes()[..]));
        assert!(targets[8..].iter().all(|&byte| byte == 0));
    }

    /// The id of the map that holds the table once the filter has these rules.
    fn table(filter: &Filter, rules: &RuleSet) -> [u8; 4] {
        filter.set_rules(rules).expect("fine rules");
        let mut id = [0_u8; 4];
        let (key, value) = (KEY.as_ptr().cast(), id.as_mut_ptr().cast());
        // SAFETY: key and value of this map have four bytes each.
        let result = unsafe { bpf_map_lookup_elem(filter.rule_maps()[0].as_raw_fd(), key, value) };
        assert_eq!(result, 0);
        id
    }

    #[test]
    fn equal_rules_are_not_set_again() {
        if !rustix::process::geteuid().is_root() {
            return spin_testing::skip("needs root");
        }
        let filter = Filter::load().expect("the kernel accepts it");
        let test = Test { offset: 0, ..TEST };
        let [one, none] = [RuleSet::list(&[test]), RuleSet::default()];
        let (first, again, other) = (table(&filter, &one), table(&filter, &one), table(&filter, &none));
        assert_eq!(first, again);
        assert_ne!(again, other);
        let then = table(&filter, &one);
        assert_ne!(then, other);
        let targeted = RuleSet { targets: vec![Target::Program(1)], ..one };
        assert_ne!(table(&filter, &targeted), then);
    }

    #[test]
    fn a_change_waits_for_frames_in_programs_that_it_leaves() {
        if !rustix::process::geteuid().is_root() {
            return spin_testing::skip("needs root");
        }
        let filter = Filter::load().expect("the kernel accepts it");
        let key = ExactKey { address: ExactKey::ANY_ADDRESS, port: [0, 9], version: 4, protocol: 17 };
        let of = |target| RuleSet { keys: vec![KeyRule { target, ..KeyRule::user_space(key) }], ..RuleSet::default() };
        let [user, one, two] = [Target::UserSpace, Target::Program(1), Target::Program(2)].map(of);
        let mut last = table(&filter, &RuleSet::default());
        // A new table is what waits.
        for (rules, waits) in [
            (&user, false),
            (&one, false),
            (&one, false),
            (&two, true),
            (&user, true),
            (&one, false),
            (&RuleSet::default(), true),
        ] {
            let id = table(&filter, rules);
            assert_eq!(id != last, waits, "{rules:?}");
            last = id;
        }
    }
}
