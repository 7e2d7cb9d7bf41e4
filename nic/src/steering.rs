//! Which frames of a NIC are handed over.

use spin_abi::rules::{END_OF_RULE, MAX_TESTS, Test};

use crate::error::NicError;

/// Decides which frames are handed to the queues of a NIC, apart from the threads that use these: a change may wait for the
/// kernel.
pub trait Steering: Send + Sync {
    /// Sets which frames are handed over: those that `tests` match, evaluated as [`spin_abi::rules`] says. The table before
    /// is replaced at once: each frame is decided by one of the two. Until the first call nothing matches. Frames received
    /// before may still be handed over afterwards.
    ///
    /// # Errors
    /// [`NicError::Rules`] when `tests` is not a well-formed table, which every backend checks; else when the kernel
    /// refuses it.
    fn set_rules(&self, tests: &[Test]) -> Result<(), NicError>;
}

/// Every frame is handed over, whatever the rules: there is no kernel to take the rest, and the caller's matcher decides on
/// each frame anyway.
#[derive(Debug)]
pub struct Everything;

impl Steering for Everything {
    fn set_rules(&self, tests: &[Test]) -> Result<(), NicError> {
        check_rules(tests)
    }
}

/// Refuses tables that are too long or whose last rule is not ended.
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
