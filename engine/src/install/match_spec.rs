//! The packets that a context gets.

use std::sync::Arc;

use spin_matcher::table::RuleUse;
use spin_matcher::{Eom, Rules, Table, TableEntry};

use spin_pspin::hpu::send_rights::SendRights;
use spin_pspin::ids::Handler;
use spin_pspin::mpq::Stage;

use super::error::{InstallError, MAX_TEXT, USER_RULES};
use super::ports::PortLease;
use crate::context::Texts;

/// The packets that a context gets, and which of them end their messages.
#[derive(Clone, Debug)]
pub struct MatchSpec {
    pub(crate) rules: Rules,
    pub(crate) eom: Eom,
    /// Ports that are the context's while it has these rules.
    pub(crate) ports: Option<Arc<PortLease>>,
    /// Frames that the context's handlers may send. `None` for rules of an administrator: an existing context keeps its ports and its
    /// rights, and a new one may send any frame.
    pub(crate) send: Option<SendRights>,
}

impl MatchSpec {
    /// Parses rules and the end-of-message predicate. The length limit applies to the text as typed, and to the text as it will
    /// be shown.
    ///
    /// # Errors
    /// [`InstallError::NoRule`], [`InstallError::Rule`], [`InstallError::Eom`], [`InstallError::Table`], [`InstallError::Text`].
    pub fn parse(rules: &[String], eom: Option<&str>) -> Result<Self, InstallError> {
        check_length(rules.iter().map(String::as_str).chain(eom))?;
        if rules.is_empty() {
            return Err(InstallError::NoRule);
        }
        let rules = Rules::parse_list(rules)?;
        let eom = match eom.map_or(Ok(Eom::Always), str::parse).map_err(InstallError::Eom)? {
            Eom::When(ends) if ends.rules.iter().all(|rule| rule.contradiction().is_some()) => Eom::Never,
            eom => eom,
        };
        let spec = Self { rules, eom, ports: None, send: None };
        spec.check_size()?;
        Ok(spec)
    }

    /// Checks that the rules alone fit a table, and that their text can be shown, before the engine's threads are asked.
    ///
    /// # Errors
    /// [`InstallError::Table`], [`InstallError::Text`].
    pub(crate) fn check_size(&self) -> Result<(), InstallError> {
        let entry = TableEntry { rules: self.rules.clone(), eom: self.eom.clone(), ..TableEntry::default() };
        Table::new(std::slice::from_ref(&entry))?;
        let Texts { rules, eom, .. } = Texts::of(&entry);
        check_length(rules.iter().chain([&eom]).map(String::as_str))
    }

    /// The rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Checks that handlers may run. In packet mode, only the payload handler runs, and no packet waits for a header.
    ///
    /// # Errors
    /// [`InstallError::NeverEnds`], [`InstallError::HeaderNeverEnds`].
    pub(crate) fn check_handlers(
        &self,
        [header, _, completion]: &[Option<Handler>; 3],
        has_header_rule: bool,
    ) -> Result<(), InstallError> {
        let idle: Vec<_> = [(Stage::Header, header), (Stage::Completion, completion)]
            .into_iter()
            .filter_map(|(stage, handler)| handler.map(|_| stage.name()))
            .collect();
        match (&self.eom, &idle[..]) {
            (Eom::Never, [_, ..]) => Err(InstallError::NeverEnds { idle: idle.join(" and ") }),
            (Eom::Never, _) if has_header_rule => Err(InstallError::HeaderNeverEnds),
            _ => Ok(()),
        }
    }

    /// Warnings of rules that no packet matches.
    pub(crate) fn never_holding(&self) -> impl Iterator<Item = String> + '_ {
        self.rules.rules.iter().filter_map(|rule| {
            let (one, two) = rule.contradiction()?;
            Some(format!("rule `{rule}` never holds: no packet matches both `{one}` and `{two}`"))
        })
    }
}

/// Checks the length of all texts together.
pub(crate) fn check_length<'t>(texts: impl Iterator<Item = &'t str>) -> Result<(), InstallError> {
    // An empty rule counts too.
    let bytes = texts.map(|text| text.len() + 1).sum();
    if bytes > MAX_TEXT { Err(InstallError::Text(bytes)) } else { Ok(()) }
}

/// Checks the rules that the contexts of a user take. `owners`: the users of the table's contexts, in its order.
pub(crate) fn check_rules(table: &Table, owners: &[u32], uid: u32) -> Result<(), InstallError> {
    let own = table.rule_uses().zip(owners).filter(|(_, owner)| **owner == uid);
    let takes =
        own.fold(RuleUse::default(), |sum, (of, _)| RuleUse { tests: sum.tests + of.tests, keys: sum.keys + of.keys });
    if takes.tests > USER_RULES.tests || takes.keys > USER_RULES.keys {
        return Err(InstallError::UserRules { uid, takes });
    }
    Ok(())
}
