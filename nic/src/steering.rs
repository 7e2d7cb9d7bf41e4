//! Selects the frames that a NIC hands over.

use spin_abi::rules::{END_OF_RULE, MAX_TESTS, Test};

use crate::error::NicError;

/// Selects the frames that a NIC hands to its queues. It is separate from the threads that use the queues, because a
/// change may wait for the kernel.
pub trait FlowSteering: Send + Sync {
    /// Sets the table of rules: the NIC hands over the frames that `tests` match, as [`spin_abi::rules`] defines. The
    /// change is atomic: each frame is decided by the old or by the new table. The first table is empty and matches
    /// nothing. Frames received before the change may still be handed over after it.
    ///
    /// # Errors
    /// [`NicError::Rules`] when `tests` is not a well-formed table, which every backend checks. Otherwise when the kernel
    /// refuses it.
    fn set_rules(&self, tests: &[Test]) -> Result<(), NicError>;
}

/// Hands over every frame, whatever the rules. There is no kernel to take the others, and the matcher of the caller
/// decides on each frame anyway.
#[derive(Debug)]
pub struct AcceptAll;

impl FlowSteering for AcceptAll {
    fn set_rules(&self, tests: &[Test]) -> Result<(), NicError> {
        check_rules(tests)
    }
}

/// Refuses tables that are too long or whose last test does not end its rule.
pub(crate) fn check_rules(tests: &[Test]) -> Result<(), NicError> {
    if tests.len() > MAX_TESTS {
        return Err(NicError::Rules(format!("{} tests, at most {MAX_TESTS} fit the XDP program", tests.len())));
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
    use spin_abi::rules::{Base, END_OF_RULE, MAX_TESTS, Test};

    #[test]
    fn rules_are_bounded_and_ended() {
        let ended = Test { base: Base::Frame, flags: END_OF_RULE, offset: 0, mask: 0, min: 0, max: 0 };
        assert!(check_rules(&[]).is_ok());
        assert!(check_rules(&vec![ended; MAX_TESTS]).is_ok());
        assert!(matches!(check_rules(&vec![ended; MAX_TESTS + 1]), Err(NicError::Rules(_))));
        assert!(matches!(check_rules(&[ended, Test { flags: 0, ..ended }]), Err(NicError::Rules(_))));
    }
}
