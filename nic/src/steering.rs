//! Selects the frames that a NIC hands over.

use spin_abi::rules::{END_OF_RULE, MAX_KEYS, MAX_PROGRAMS, MAX_TESTS, RuleSet, Target};

use crate::error::NicError;

/// Selects the frames that a NIC hands to its queues. It is separate from the threads that use the queues, because a
/// change may wait for the kernel.
pub trait FlowSteering: Send + Sync {
    /// Sets the rules: the NIC hands over the frames that they match, as [`spin_abi::rules`] defines. The change is atomic:
    /// each frame is decided by the old or by the new rules. The first rules are empty and match nothing. Frames received
    /// before the change may still be handed over after it.
    ///
    /// # Errors
    /// [`NicError::Rules`] when the rules are not well-formed, which every backend checks. Otherwise when the kernel refuses
    /// them.
    fn set_rules(&self, rules: &RuleSet) -> Result<(), NicError>;
}

/// Hands over every frame, whatever the rules. There is no kernel to take the others, and the matcher of the caller
/// decides on each frame anyway.
#[derive(Debug)]
pub struct AcceptAll;

impl FlowSteering for AcceptAll {
    fn set_rules(&self, rules: &RuleSet) -> Result<(), NicError> {
        check_rules(rules)
    }
}

/// Refuses rules that are too many, and a list whose last test does not end its rule.
pub(crate) fn check_rules(RuleSet { tests, targets, keys }: &RuleSet) -> Result<(), NicError> {
    if keys.len() > MAX_KEYS {
        return Err(NicError::Rules(format!("{} exact keys, at most {MAX_KEYS} fit the XDP program", keys.len())));
    }
    if tests.len() > MAX_TESTS {
        return Err(NicError::Rules(format!("{} tests, at most {MAX_TESTS} fit the XDP program", tests.len())));
    }
    let targets = targets.iter().copied().chain(keys.iter().map(|rule| rule.target));
    if let Some(Target::Program(index)) = targets.max().filter(|target| target.number() > MAX_PROGRAMS) {
        return Err(NicError::Rules(format!("program {index}, the last one is {}", MAX_PROGRAMS - 1)));
    }
    if tests.last().is_some_and(|test| test.flags & END_OF_RULE == 0) {
        return Err(NicError::Rules("the last test does not end its rule".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_rules;
    use crate::error::NicError;
    use spin_abi::rules::{
        Base, END_OF_RULE, ExactKey, KeyRule, MAX_KEYS, MAX_PROGRAMS, MAX_TESTS, RuleSet, Target, Test,
    };

    #[test]
    fn rules_are_bounded_and_ended() {
        let ended = Test { base: Base::Frame, flags: END_OF_RULE, offset: 0, mask: 0, min: 0, max: 0 };
        let check = |tests: Vec<Test>| check_rules(&RuleSet::list(&tests));
        assert!(check(vec![]).is_ok());
        assert!(check(vec![ended; MAX_TESTS]).is_ok());
        assert!(matches!(check(vec![ended; MAX_TESTS + 1]), Err(NicError::Rules(_))));
        assert!(matches!(check(vec![ended, Test { flags: 0, ..ended }]), Err(NicError::Rules(_))));
        let key = ExactKey { address: ExactKey::ANY_ADDRESS, port: [0, 1], version: 4, protocol: 17 };
        let key = KeyRule::user_space(key);
        let check = |count| check_rules(&RuleSet { keys: vec![key; count], ..RuleSet::default() });
        assert!(check(MAX_KEYS).is_ok() && matches!(check(MAX_KEYS + 1), Err(NicError::Rules(_))));
        let [last, beyond] = [MAX_PROGRAMS - 1, MAX_PROGRAMS].map(|index| Target::Program(index as u16));
        let check = |of_key, of_test| {
            let keys = vec![KeyRule { target: of_key, ..key }];
            check_rules(&RuleSet { tests: vec![ended], targets: vec![of_test], keys })
        };
        assert!(check(last, last).is_ok());
        assert!(check(beyond, last).is_err() && check(last, beyond).is_err());
    }
}
