//! Which packets a context gets.

use spin_matcher::{Eom, Rules, Table, TableEntry};

use super::error::{InstallError, MAX_TEXT};
use crate::context::Texts;

/// Which packets a context gets, and which of them end their messages.
#[derive(Clone, Debug)]
pub struct MatchSpec {
    pub(crate) rules: Rules,
    pub(crate) eom: Eom,
}

impl MatchSpec {
    /// Parses rules and the end-of-message predicate. The length of the text is limited as typed and as it will be shown.
    ///
    /// # Errors
    /// [`InstallError::NoRule`], [`InstallError::Rule`], [`InstallError::Eom`], [`InstallError::Table`], [`InstallError::Text`].
    pub fn parse(rules: &[String], eom: Option<&str>) -> Result<Self, InstallError> {
        check_length(rules.iter().map(String::as_str).chain(eom))?;
        if rules.is_empty() {
            return Err(InstallError::NoRule);
        }
        let rules = Rules::parse_list(rules)?;
        let eom = eom.map_or(Ok(Eom::Always), str::parse).map_err(InstallError::Eom)?;
        // Refuse rules that alone fit no table here, before the engine's threads are asked.
        let entry = TableEntry { rules, eom, ..TableEntry::default() };
        Table::new(std::slice::from_ref(&entry))?;
        let Texts { rules, eom, .. } = Texts::of(&entry);
        check_length(rules.iter().chain([&eom]).map(String::as_str))?;
        Ok(Self { rules: entry.rules, eom: entry.eom })
    }

    /// The rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }
}

/// Checks that texts are short enough together.
pub(crate) fn check_length<'t>(texts: impl Iterator<Item = &'t str>) -> Result<(), InstallError> {
    // An empty rule counts too.
    let bytes = texts.map(|text| text.len() + 1).sum();
    if bytes > MAX_TEXT { Err(InstallError::Text(bytes)) } else { Ok(()) }
}
