//! Targets of a rule set, as [`spin_abi::rules`] defines them, so that each frame goes to the target of the first context that matches.

use std::collections::HashMap;

use spin_abi::rules::{Base, END_OF_RULE, ExactKey, RuleSet, Target, Test};

use crate::exact::ExactIndex;

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;

/// A context with its part of the list.
#[derive(Clone, Copy)]
pub(crate) struct ContextPart {
    pub(crate) target: Target,
    /// Number of its tests in the list.
    pub(crate) tests: usize,
}

/// A rule of the list.
struct Listed<'t> {
    /// Index of its context.
    context: usize,
    target: Target,
    tests: &'t [Test],
    /// Number of tests up to its end.
    end: u16,
}

/// Sets the targets of `rules`, whose list has the parts of the contexts in their order. `exact` has the contexts' keys.
pub(crate) fn set(rules: &mut RuleSet, contexts: &[ContextPart], exact: &ExactIndex) {
    rules.targets = contexts.iter().flat_map(|part| std::iter::repeat_n(part.target, part.tests)).collect();
    let listed = listed(&rules.tests, contexts);
    let mut narrower: HashMap<ExactKey, Vec<(Target, u16)>> = HashMap::new();
    for rule in &mut rules.keys {
        let key = rule.key;
        let any = ExactKey { address: ExactKey::ANY_ADDRESS, ..key };
        let owner = [key, any].iter().filter_map(|key| exact.owner(key)).min();
        let Some((owner, part)) = owner.and_then(|owner| Some((owner, contexts.get(owner)?))) else { continue };
        let goes_before = |other: &&Listed<'_>| {
            other.context < owner && other.target != part.target && other.tests.iter().all(|test| may_hold(test, &key))
        };
        rule.target = part.target;
        rule.tests_before = listed.iter().rev().find(goes_before).map_or(0, |last| last.end);
        if key != any {
            narrower.entry(any).or_default().push((rule.target, rule.tests_before));
        }
    }
    for rule in &mut rules.keys {
        let same = (rule.target, rule.tests_before);
        rule.has_narrower = narrower.get(&rule.key).is_some_and(|others| others.iter().any(|other| *other != same));
    }
}

/// The rules of a list, by context.
fn listed<'t>(tests: &'t [Test], contexts: &[ContextPart]) -> Vec<Listed<'t>> {
    let mut owners =
        contexts.iter().enumerate().flat_map(|(index, part)| std::iter::repeat_n((index, part.target), part.tests));
    let mut end = 0;
    let rules = tests.split_inclusive(|test| test.flags & END_OF_RULE != 0);
    rules
        .filter_map(|tests| {
            end += tests.len() as u16;
            let (context, target) = owners.nth(tests.len() - 1)?;
            Some(Listed { context, target, tests, end })
        })
        .collect()
}

/// Whether a test may hold for a frame with a key.
fn may_hold(test: &Test, key: &ExactKey) -> bool {
    let word = match (test.base, test.offset, test.mask) {
        (Base::Kind, ..) => {
            let ethertype = if key.version == 4 { IPV4 } else { IPV6 };
            ethertype << 16 | u32::from(key.version) << 8 | u32::from(key.protocol)
        }
        // The destination port.
        (Base::L4, 0, 0..=0xffff) if test.flags & !END_OF_RULE == 0 => u16::from_be_bytes(key.port).into(),
        _ => return true,
    };
    (test.min..=test.max).contains(&(word & test.mask))
}

#[cfg(test)]
mod tests {
    use spin_abi::rules::{KeyRule, Target};

    use crate::{Table, TableEntry};

    /// Port, target, tests before, and whether there are narrower keys.
    type Key = (u16, Target, u16, bool);

    /// Targets of the tests, and the keys of IPv4.
    fn targets(entries: &[(&str, Target)]) -> (Vec<Target>, Vec<Key>) {
        let entry = |&(rules, target): &(&str, Target)| TableEntry {
            rules: rules.parse().expect("rules"),
            target,
            ..TableEntry::default()
        };
        let table = Table::new(&entries.iter().map(entry).collect::<Vec<_>>()).expect("few tests");
        let of_key =
            |rule: &KeyRule| (u16::from_be_bytes(rule.key.port), rule.target, rule.tests_before, rule.has_narrower);
        let keys = table.rules().keys.iter().filter(|rule| rule.key.version == 4).map(of_key).collect();
        (table.rules().targets.clone(), keys)
    }

    const USER: Target = Target::UserSpace;
    const ONE: Target = Target::Program(1);
    const TWO: Target = Target::Program(2);

    #[test]
    fn keys_have_the_target_of_the_first_context() {
        let entries = [("udp dport 9", ONE), ("udp dport 9 or udp dport 10", TWO), ("udp dport 11", USER)];
        let keys = vec![(9, ONE, 0, false), (10, TWO, 0, false), (11, USER, 0, false)];
        assert_eq!(targets(&entries), (Vec::new(), keys));
    }

    #[test]
    fn earlier_rules_of_the_list_go_before_where_they_may_hold_and_lead_elsewhere() {
        let earlier = "udp dport 1-65 or tcp";
        let (tests, keys) = targets(&[(earlier, USER), ("udp dport 9 or udp dport 99", ONE), ("udp dport 7", USER)]);
        assert!(!tests.is_empty() && tests.iter().all(|target| *target == USER), "{tests:?}");
        // The alternative of TCP is another rule.
        let [(9, ONE, before @ 1.., false), (99, ONE, 0, false), (7, USER, 0, false)] = keys[..] else {
            panic!("{keys:?}")
        };
        assert!(usize::from(before) < tests.len(), "{keys:?}");
        let (tests, keys) = targets(&[("udp dport 9", ONE), (earlier, USER)]);
        assert!(tests.iter().all(|target| *target == USER), "{tests:?}");
        assert_eq!(keys, [(9, ONE, 0, false)]);
        assert_eq!(targets(&[("icmp echo", TWO)]).0.iter().filter(|target| **target == TWO).count(), 2);
    }

    #[test]
    fn the_key_of_an_address_has_the_target_of_the_first_context_of_both() {
        let addressed = "ip dst 10.0.0.1 and udp dport 9";
        assert_eq!(
            targets(&[("ip and udp dport 9", ONE), (addressed, TWO)]).1,
            [(9, ONE, 0, false), (9, ONE, 0, false)]
        );
        assert_eq!(
            targets(&[(addressed, TWO), ("ip and udp dport 9", ONE)]).1,
            [(9, TWO, 0, false), (9, ONE, 0, true)]
        );
    }
}
