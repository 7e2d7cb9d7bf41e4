//! Header rules: which packets are headers of their messages (PsPIN paper §III-D).
//!
//! Without a rule, the first packet of a message that arrives is its header. A network that reorders packets may deliver others before it.

use std::time::Duration;

use spin_abi::control::Early;
use spin_abi::rules::Test;
use spin_matcher::compile::compile;
use spin_matcher::evaluate::any_rule_holds;
use spin_matcher::{Headers, Rules};

use crate::install::InstallError;

/// Time that a message without a message timeout waits for its header.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(1);

/// Which packets of a context are headers, and what becomes of packets that arrive before their header.
#[derive(Clone, Debug)]
pub struct HeaderRule {
    tests: Vec<Test>,
    /// The rule, for users.
    pub text: String,
    /// What becomes of early packets.
    pub early: Early,
}

impl HeaderRule {
    /// Reads a rule.
    ///
    /// # Errors
    /// [`InstallError::Header`], [`InstallError::HeaderTests`].
    pub fn parse(text: &str, early: Early) -> Result<Self, InstallError> {
        let rules: Rules = text.parse().map_err(InstallError::Header)?;
        let tests = compile(&rules).map_err(InstallError::HeaderTests)?;
        Ok(Self { tests, text: rules.to_string(), early })
    }

    /// Whether a frame is the header of its message.
    pub(crate) fn is_header(&self, frame: &[u8]) -> bool {
        any_rule_holds(&self.tests, frame, &Headers::parse(frame))
    }
}
