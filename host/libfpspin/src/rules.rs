//! Conversion of rulesets to spind's rules, and the library's predefined rulesets.

use spin_abi::control::Compat;
use spin_matcher::fpspin::{self, Beyond, FpspinRule, Mode};
use spin_matcher::{Eom, Rules};

use crate::layout::{MODE_AND, MODE_OR, NUM_RULESETS, Rule, Ruleset};
use crate::slmp;

/// Rule that always matches: `FPSPIN_RULE_EMPTY`.
const EMPTY: Rule = Rule { idx: 0, mask: 0, start: 0, end: 0 };
/// Rule that never matches: `FPSPIN_RULE_FALSE`.
const FALSE: Rule = Rule { idx: 0, mask: 0, start: 1, end: 0 };
/// `FPSPIN_RULE_IP`.
const IP: Rule = exact(3, 0xffff_0000, 0x0800_0000);
const UDP: u32 = 17;

/// A rule for one value of the masked word.
const fn exact(idx: i32, mask: u32, value: u32) -> Rule {
    Rule { idx, mask, start: value, end: value }
}

/// Reason why rulesets were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// Too few or too many rulesets.
    #[error("{0} rulesets: between 1 and {NUM_RULESETS}")]
    Count(usize),
    /// A mode that is neither AND nor OR.
    #[error("ruleset {ruleset}: mode {mode} is neither FPSPIN_MODE_AND nor FPSPIN_MODE_OR")]
    Mode {
        /// Index of the ruleset.
        ruleset: usize,
        /// Mode found.
        mode: i32,
    },
    /// A negative word index.
    #[error("ruleset {ruleset}: rule {rule} looks at word {idx}")]
    Index {
        /// Index of the ruleset.
        ruleset: usize,
        /// Index of the rule in its ruleset.
        rule: usize,
        /// Word index found.
        idx: i32,
    },
}

impl Ruleset {
    /// Matches no packet.
    pub const BYPASS: Self = Self { r: [FALSE; 4], mode: MODE_AND };
    /// Matches all packets; each packet is a message.
    pub const MATCH: Self = Self { r: [EMPTY; 4], mode: MODE_AND };
    /// Matches UDP over IPv4, without messages: packet mode.
    pub const UDP: Self = Self { r: [IP, exact(5, 0xff, UDP), EMPTY, FALSE], mode: MODE_AND };
    /// Matches SLMP over IPv4; the packet with the end-of-message flag ends a message.
    pub const SLMP: Self = Self {
        r: [
            IP,
            exact(5, 0xff, UDP),
            exact(9, 0xffff_0000, (slmp::PORT as u32) << 16),
            exact(10, slmp::EOM as u32, slmp::EOM as u32),
        ],
        mode: MODE_AND,
    };

    fn checked(&self, number: usize) -> Result<fpspin::Ruleset, RulesError> {
        let mode = match self.mode {
            MODE_AND => Mode::And,
            MODE_OR => Mode::Or,
            mode => return Err(RulesError::Mode { ruleset: number, mode }),
        };
        let mut rules = [FpspinRule { idx: 0, mask: 0, start: 0, end: 0 }; 4];
        for (at, (to, &Rule { idx, mask, start, end })) in rules.iter_mut().zip(&self.r).enumerate() {
            let bad = RulesError::Index { ruleset: number, rule: at, idx };
            *to = FpspinRule { idx: u32::try_from(idx).map_err(|_| bad)?, mask, start, end };
        }
        Ok(fpspin::Ruleset { rules, mode })
    }
}

/// Returns how rules treat words beyond the end of the frame: they read as zero for FPsPIN and match nothing for spind.
const fn beyond(compat: Compat) -> Beyond {
    match compat {
        Compat::None => Beyond::Fails,
        Compat::Fpspin => Beyond::Zero,
    }
}

/// Converts rulesets to spind's rules under the given message semantics: which packets match, and which of them end a
/// message.
///
/// # Errors
/// See [`RulesError`].
pub fn together(rulesets: &[Ruleset], compat: Compat) -> Result<(Rules, Eom), RulesError> {
    if !(1..=NUM_RULESETS).contains(&rulesets.len()) {
        return Err(RulesError::Count(rulesets.len()));
    }
    let checked: Result<Vec<_>, _> = rulesets.iter().enumerate().map(|(number, rs)| rs.checked(number)).collect();
    Ok(match fpspin::together(&checked?, beyond(compat)) {
        // Without packets there is no packet mode: all handlers stay, for the rulesets to come.
        (rules, _) if rules.rules.is_empty() => (rules, Eom::Always),
        (rules, eom) => (rules, eom),
    })
}

/// Returns the message key for the given semantics.
#[must_use]
pub fn key(compat: Compat) -> String {
    fpspin::key(beyond(compat)).to_string()
}

#[cfg(test)]
mod tests {
    use super::{Compat, Rule, RulesError, Ruleset, key, together};
    use crate::layout::MODE_OR;

    fn texts(ruleset: Ruleset) -> (String, String) {
        let (rules, eom) = together(&[ruleset], Compat::None).expect("good rules");
        (rules.to_string(), eom.to_string())
    }

    #[test]
    fn the_library_s_own_rulesets_are_what_they_say() {
        let pair = |rules: &str, eom: &str| (rules.to_owned(), eom.to_owned());
        assert_eq!(texts(Ruleset::BYPASS), pair("never", "always"));
        assert_eq!(texts(Ruleset::MATCH), pair("any", "always"));
        let udp = "frame[12:4] & 0xffff0000 = 0x08000000 and frame[20:4] & 0x000000ff = 0x00000011";
        assert_eq!(texts(Ruleset::UDP), pair(udp, "never"));
        let slmp = format!("{udp} and frame[36:4] & 0xffff0000 = 0x24720000");
        assert_eq!(texts(Ruleset::SLMP), pair(&slmp, "frame[40:4] & 0x00008000 = 0x00008000"));
        assert_eq!([Compat::None, Compat::Fpspin].map(key), ["flow + frame[44:4]", "fpspin"]);
    }

    #[test]
    fn what_is_not_a_ruleset_is_refused() {
        let with = |mode, idx| Ruleset { mode, r: [Rule { idx, ..Rule::default() }; 4] };
        let refused = |rulesets: &[Ruleset]| together(rulesets, Compat::None).err();
        assert_eq!(refused(&[]), Some(RulesError::Count(0)));
        assert_eq!(refused(&[Ruleset::UDP; 5]), Some(RulesError::Count(5)));
        assert_eq!(refused(&[Ruleset::UDP, with(2, 0)]), Some(RulesError::Mode { ruleset: 1, mode: 2 }));
        assert_eq!(refused(&[with(MODE_OR, -1)]), Some(RulesError::Index { ruleset: 0, rule: 0, idx: -1 }));
        assert_eq!(refused(&[with(MODE_OR, i32::MAX); 4]), None);
    }
}
