//! Table of contexts in order of priority. It finds the context of a frame.

use std::sync::Arc;

use spin_abi::rules::{ExactKey, KeyRule, MAX_KEYS, MAX_TESTS, RuleSet, Target, Test};

use crate::compile::{CompileError, compile};
use crate::evaluate::any_rule_holds;
use crate::exact::{self, ExactIndex};
use crate::headers::Headers;
use crate::key::{KeySpec, MessageKey};
use crate::plain::PlainRules;
use crate::rule::{Eom, Rules};
use crate::targets::{self, ContextPart};

/// Matching parameters of a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableEntry {
    /// Id of the context.
    pub context: u32,
    /// Rules for the context's frames. Contexts earlier in the table take precedence.
    pub rules: Rules,
    /// Predicate for the last frame of a message.
    pub eom: Eom,
    /// Message key.
    pub key: KeySpec,
    /// Where a NIC's filter sends the context's frames.
    pub target: Target,
}

/// Reason why a table could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The rules of a single context are too many.
    #[error("{}: {source}", of(*context))]
    Rules {
        /// Id of the context.
        context: u32,
        /// Cause.
        source: CompileError,
    },
    /// The end-of-message rules of a single context are too many.
    #[error("{}, end of message: {source}", of(*context))]
    Eom {
        /// Id of the context.
        context: u32,
        /// Cause.
        source: CompileError,
    },
    /// The exact rules of all contexts together are too many.
    #[error(
        "{} needs {keys} pairs of an address and a port, {left} of {MAX_KEYS} are left: remove a context or use fewer ports",
        of(*context)
    )]
    Keys {
        /// Id of the first context that did not fit.
        context: u32,
        /// Number of keys of its rules that no context before it has.
        keys: usize,
        /// Number of keys left by the contexts before it.
        left: usize,
    },
    /// The rules of all contexts together, except exact ones, are too many.
    #[error(
        "{} needs {tests} tests, {left} of {MAX_TESTS} are left: \
         remove a context or use fewer rules, prefixes instead of addresses, or ranges",
        of(*context)
    )]
    Full {
        /// Id of the first context that did not fit.
        context: u32,
        /// Number of tests of its rules.
        tests: usize,
        /// Number of tests left by the contexts before it.
        left: usize,
    },
}

/// Name of a context in messages. A context that is not installed yet has no id.
fn of(context: u32) -> String {
    if context == 0 { "the new context".to_owned() } else { format!("context {context}") }
}

/// Result of matching a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Id of the context.
    pub context: u32,
    /// Index of the context in the table.
    pub index: usize,
    /// Key of the message within the context.
    pub key: MessageKey,
    /// Whether the frame is the last of its message.
    pub eom: bool,
}

/// Compiled matching rules of all contexts. Immutable: a change of contexts builds a new table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Rules of all contexts.
    rules: RuleSet,
    contexts: Vec<Context>,
    exact: ExactIndex,
    /// Indices of the contexts whose rules are not all exact.
    listed: Vec<usize>,
}

/// Part of a [`RuleSet`] that a context takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleUse {
    /// Number of tests.
    pub tests: usize,
    /// Number of exact keys.
    pub keys: usize,
}

/// A context in the table.
#[derive(Clone, Debug)]
struct Context {
    entry: Arc<CompiledEntry>,
    /// Part of the rule set, without keys of earlier contexts.
    takes: RuleUse,
}

/// A [`TableEntry`] with its compiled rules, which tables share.
#[derive(Debug)]
pub struct CompiledEntry {
    entry: TableEntry,
    /// All rules.
    tests: Vec<Test>,
    /// Rules that are not exact.
    listed: Vec<Test>,
    /// Keys of the exact rules.
    keys: Vec<ExactKey>,
    eom: CompiledEom,
    /// Whether the message key is the flow alone.
    key_is_flow: bool,
    /// Rules, specialised for plain frames.
    plain_rules: PlainRules,
    /// End-of-message predicate, specialised for plain frames.
    plain_eom: PlainRules,
}

impl CompiledEntry {
    /// Compiles an entry.
    ///
    /// # Errors
    /// When it needs more than [`MAX_TESTS`] tests.
    pub fn new(entry: TableEntry) -> Result<Self, TableError> {
        let context = entry.context;
        let tests = compile(&entry.rules).map_err(|source| TableError::Rules { context, source })?;
        let eom = match &entry.eom {
            Eom::Always => CompiledEom::Always,
            Eom::Never => CompiledEom::When(Vec::new()),
            Eom::When(rules) => {
                CompiledEom::When(compile(rules).map_err(|source| TableError::Eom { context, source })?)
            }
        };
        let plain_eom = match &eom {
            CompiledEom::Always => PlainRules::ALWAYS,
            CompiledEom::When(tests) => PlainRules::new(tests),
        };
        let (listed, keys) = exact::split(&tests);
        Ok(Self {
            plain_rules: PlainRules::new(&tests),
            key_is_flow: entry.key.flow() && entry.key.parts().is_empty(),
            entry,
            tests,
            listed,
            keys,
            eom,
            plain_eom,
        })
    }

    /// This entry with other rules.
    ///
    /// # Errors
    /// As [`CompiledEntry::new`].
    pub fn with_rules(&self, rules: Rules, eom: Eom) -> Result<Self, TableError> {
        Self::new(TableEntry { rules, eom, ..self.entry.clone() })
    }

    /// What was compiled.
    #[must_use]
    #[inline]
    pub const fn entry(&self) -> &TableEntry {
        &self.entry
    }

    /// Calls `found` with the message key of a plain frame of this context, and with whether the frame is the last of its message.
    #[inline(always)]
    fn found_plain<R>(&self, frame: &[u8], end: u32, found: impl FnOnce(MessageKey, bool) -> R) -> R {
        let eom = self.plain_eom.hold(frame, end as usize);
        match MessageKey::plain_flow(frame) {
            Some(key) if self.key_is_flow => found(key, eom),
            _ => found(self.entry.key.build(frame, &Headers::plain(end)), eom),
        }
    }
}

#[derive(Clone, Debug)]
enum CompiledEom {
    Always,
    When(Vec<Test>),
}

impl Table {
    /// Compiles `entries`. Earlier ones take precedence.
    ///
    /// # Errors
    /// As [`CompiledEntry::new`] and [`Table::of`].
    pub fn new(entries: &[TableEntry]) -> Result<Self, TableError> {
        let compile = |entry: &TableEntry| CompiledEntry::new(entry.clone()).map(Arc::new);
        Self::of(entries.iter().map(compile).collect::<Result<_, _>>()?)
    }

    /// A table of compiled entries. Earlier ones take precedence.
    ///
    /// # Errors
    /// When they need more than [`MAX_TESTS`] tests or [`MAX_KEYS`] keys. The caller should then keep its current table.
    pub fn of(entries: Vec<Arc<CompiledEntry>>) -> Result<Self, TableError> {
        let mut table = Self::default();
        for entry in entries {
            let takes = table.add_rules(&entry)?;
            table.contexts.push(Context { entry, takes });
        }
        let part = |context: &Context| ContextPart { target: context.entry.entry.target, tests: context.takes.tests };
        let parts: Vec<_> = table.contexts.iter().map(part).collect();
        if parts.iter().any(|part| part.target != Target::UserSpace) {
            targets::set(&mut table.rules, &parts, &table.exact);
        }
        Ok(table)
    }

    /// Adds the rules of the next context to the rule set.
    fn add_rules(&mut self, entry: &CompiledEntry) -> Result<RuleUse, TableError> {
        let CompiledEntry { entry: TableEntry { context, .. }, listed, keys, .. } = entry;
        let left = MAX_TESTS - self.rules.tests.len();
        if listed.len() > left {
            return Err(TableError::Full { context: *context, tests: listed.len(), left });
        }
        let left = MAX_KEYS - self.rules.keys.len();
        let keys = self.exact.add(self.contexts.len(), keys);
        let takes = RuleUse { tests: listed.len(), keys: keys.len() };
        if takes.keys > left {
            return Err(TableError::Keys { context: *context, keys: takes.keys, left });
        }
        if takes.tests > 0 {
            self.listed.push(self.contexts.len());
        }
        self.rules.keys.extend(keys.into_iter().map(KeyRule::user_space));
        self.rules.tests.extend(listed);
        Ok(takes)
    }

    /// The rules of all contexts for the XDP program: a frame matches a context exactly when it matches them.
    #[must_use]
    pub const fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Parts of [`rules`](Self::rules) that the contexts take, in their order.
    pub fn rule_uses(&self) -> impl Iterator<Item = RuleUse> + '_ {
        self.contexts.iter().map(|context| context.takes)
    }

    /// First context whose rules hold for `frame`. Equivalent to [`Table::match_frame`], but faster. Calls `found` with the index in the
    /// table, the message key, and whether the frame is the last of its message.
    #[inline(always)]
    pub fn find<R>(&self, frame: &[u8], found: impl FnOnce(usize, MessageKey, bool) -> R) -> Option<R> {
        let Some(end) = Headers::plain_end(frame) else {
            let Match { index, key, eom, .. } = self.find_any(frame)?;
            return Some(found(index, key, eom));
        };
        // Test the first context separately, which is faster for its frames.
        let first = &self.contexts.first()?.entry;
        if first.plain_rules.hold(frame, end as usize) {
            return Some(first.found_plain(frame, end, |key, eom| found(0, key, eom)));
        }
        let index = self.next_plain(frame, end as usize)?;
        Some(self.contexts[index].entry.found_plain(frame, end, |key, eom| found(index, key, eom)))
    }

    #[cold]
    #[inline(never)]
    fn find_any(&self, frame: &[u8]) -> Option<Match> {
        let headers = Headers::parse_any(frame);
        let exact = self.exact.find(frame, &headers);
        let index = self.first_listed(exact, |entry| any_rule_holds(&entry.tests, frame, &headers))?;
        Some(self.matched(index, frame, &headers))
    }

    /// The first context whose rules hold for a plain frame whose packet ends at `end`.
    #[inline(never)]
    fn next_plain(&self, frame: &[u8], end: usize) -> Option<usize> {
        self.first_listed(self.exact.find_plain(frame), |entry| entry.plain_rules.hold(frame, end))
    }

    /// The first context whose rules hold: `exact`, or an earlier one whose rules are not all exact.
    #[inline]
    fn first_listed(&self, exact: Option<usize>, holds: impl Fn(&CompiledEntry) -> bool) -> Option<usize> {
        let before = exact.unwrap_or(usize::MAX);
        let mut earlier = self.listed.iter().copied().take_while(|&index| index < before);
        earlier.find(|&index| holds(&self.contexts[index].entry)).or(exact)
    }

    /// First context whose rules hold for `frame`, whose headers are `headers`. Tries all contexts in order, and allocates nothing.
    #[must_use]
    pub fn match_frame(&self, frame: &[u8], headers: &Headers) -> Option<Match> {
        let index = self.contexts.iter().position(|context| any_rule_holds(&context.entry.tests, frame, headers))?;
        Some(self.matched(index, frame, headers))
    }

    /// The match of a frame with the context at `index`.
    fn matched(&self, index: usize, frame: &[u8], headers: &Headers) -> Match {
        let CompiledEntry { entry: TableEntry { context, key, .. }, eom, .. } = &*self.contexts[index].entry;
        let eom = match eom {
            CompiledEom::Always => true,
            CompiledEom::When(tests) => any_rule_holds(tests, frame, headers),
        };
        Match { context: *context, index, key: key.extract(frame, headers), eom }
    }
}

#[cfg(test)]
mod tests {
    use super::{Match, Table, TableEntry, TableError};
    use crate::headers::Headers;

    fn entry(context: u32, rules: &str, eom: &str) -> TableEntry {
        let (rules, eom) = (rules.parse().expect("rules"), eom.parse().expect("a predicate"));
        TableEntry { context, rules, eom, ..TableEntry::default() }
    }

    fn matched(table: &Table, frame: &[u8]) -> Option<Match> {
        table.match_frame(frame, &Headers::parse(frame))
    }

    #[test]
    fn the_first_context_that_matches_takes_the_frame() {
        let entries =
            [entry(7, "never", "always"), entry(5, "ether type 0x88b5", "frame[14:1] = 1"), entry(9, "any", "never")];
        let table = Table::new(&entries).expect("few tests");
        let mut frame = [0; 60];
        assert_eq!(matched(&table, &frame).map(|m| (m.context, m.index, m.eom)), Some((9, 2, false)));
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        assert_eq!(matched(&table, &frame).map(|m| (m.context, m.index, m.eom)), Some((5, 1, false)));
        frame[14] = 1;
        assert_eq!(matched(&table, &frame).map(|m| (m.context, m.index, m.eom)), Some((5, 1, true)));
        assert_eq!(matched(&Table::new(&entries[..1]).expect("few tests"), &frame), None);
    }

    #[test]
    fn a_full_table_names_the_context_that_did_not_fit() {
        let rule = ["udp sport 1"; 100].join(" or ");
        let entries = [1, 2, 3].map(|context| entry(context, &rule, "always"));
        assert_eq!(Table::new(&entries[..2]).expect("400 tests").rules().tests.len(), 400);
        let error = Table::new(&entries).expect_err("600 tests");
        assert_eq!(error, TableError::Full { context: 3, tests: 200, left: 112 });
        assert!(error.to_string().starts_with("context 3 needs 200 tests, 112 of 512 are left: "), "{error}");
        let error = TableError::Full { context: 0, tests: 200, left: 112 };
        assert!(error.to_string().starts_with("the new context needs 200 tests, "), "{error}");
        assert!(error.to_string().contains("112 of 512 are left"), "{error}");
    }
}
