//! Table of contexts in order of priority. It finds the context of a frame.

use spin_abi::rules::{MAX_TESTS, Test};

use crate::compile::{CompileError, compile};
use crate::evaluate::any_rule_holds;
use crate::headers::Headers;
use crate::key::{KeySpec, MessageKey};
use crate::plain::PlainRules;
use crate::rule::{Eom, Rules};

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
    /// The rules of all contexts together are too many.
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
    /// Rules of all contexts, in order.
    tests: Vec<Test>,
    contexts: Vec<Context>,
}

#[derive(Clone, Debug)]
struct Context {
    id: u32,
    /// End of the context's rules in `Table::tests`. They start at the end of the previous context's rules.
    end: usize,
    eom: CompiledEom,
    key: KeySpec,
    /// Whether the message key is the flow alone.
    key_is_flow: bool,
    /// Rules, specialised for plain frames.
    plain_rules: PlainRules,
    /// End-of-message predicate, specialised for plain frames.
    plain_eom: PlainRules,
}

impl Context {
    /// Calls `found` with the message key of a plain frame of this context, and with whether the frame is the last of its message.
    #[inline(always)]
    fn found_plain<R>(&self, frame: &[u8], end: u32, found: impl FnOnce(MessageKey, bool) -> R) -> R {
        let eom = self.plain_eom.hold(frame, end as usize);
        match MessageKey::plain_flow(frame) {
            Some(key) if self.key_is_flow => found(key, eom),
            _ => found(self.key.build(frame, &Headers::plain(end)), eom),
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
    /// When they need more than [`MAX_TESTS`] tests. The caller should then keep its current table.
    pub fn new(entries: &[TableEntry]) -> Result<Self, TableError> {
        let mut table = Self::default();
        for entry in entries {
            table.add(entry)?;
        }
        Ok(table)
    }

    fn add(&mut self, entry: &TableEntry) -> Result<(), TableError> {
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
        let plain_rules = PlainRules::new(&tests);
        let left = MAX_TESTS - self.tests.len();
        if tests.len() > left {
            return Err(TableError::Full { context, tests: tests.len(), left });
        }
        self.tests.extend(tests);
        self.contexts.push(Context {
            id: context,
            end: self.tests.len(),
            eom,
            key: entry.key.clone(),
            key_is_flow: entry.key.flow() && entry.key.parts().is_empty(),
            plain_rules,
            plain_eom,
        });
        Ok(())
    }

    /// The tests of all contexts for the XDP program: a frame matches a context exactly when a rule of them holds.
    #[must_use]
    pub fn tests(&self) -> &[Test] {
        &self.tests
    }

    /// First context whose rules hold for `frame`. Equivalent to [`Table::match_frame`], but faster for most frames. Calls `found` with
    /// the index in the table, the message key, and whether the frame is the last of its message.
    #[inline(always)]
    pub fn find<R>(&self, frame: &[u8], found: impl FnOnce(usize, MessageKey, bool) -> R) -> Option<R> {
        let Some(end) = Headers::plain_end(frame) else {
            let Match { index, key, eom, .. } = self.find_any(frame)?;
            return Some(found(index, key, eom));
        };
        // Test the first context separately, which is faster for its frames.
        let first = self.contexts.first()?;
        if first.plain_rules.hold(frame, end as usize) {
            return Some(first.found_plain(frame, end, |key, eom| found(0, key, eom)));
        }
        let index = self.next_plain(frame, end as usize)?;
        Some(self.contexts[index].found_plain(frame, end, |key, eom| found(index, key, eom)))
    }

    #[cold]
    #[inline(never)]
    fn find_any(&self, frame: &[u8]) -> Option<Match> {
        self.match_frame(frame, &Headers::parse_any(frame))
    }

    /// The first context whose rules hold for a plain frame whose packet ends at `end`.
    #[inline(never)]
    fn next_plain(&self, frame: &[u8], end: usize) -> Option<usize> {
        self.contexts.iter().position(|context| context.plain_rules.hold(frame, end))
    }

    /// First context whose rules hold for `frame`, whose headers are `headers`. Allocates nothing.
    #[must_use]
    pub fn match_frame(&self, frame: &[u8], headers: &Headers) -> Option<Match> {
        let index = self.first(frame, headers)?;
        let context = &self.contexts[index];
        let eom = match &context.eom {
            CompiledEom::Always => true,
            CompiledEom::When(tests) => any_rule_holds(tests, frame, headers),
        };
        Some(Match { context: context.id, index, key: context.key.extract(frame, headers), eom })
    }

    #[inline]
    fn first(&self, frame: &[u8], headers: &Headers) -> Option<usize> {
        let mut start = 0;
        self.contexts.iter().position(|context| {
            let tests = &self.tests[start..context.end];
            start = context.end;
            any_rule_holds(tests, frame, headers)
        })
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
        let rule = ["udp dport 1"; 100].join(" or ");
        let entries = [1, 2, 3].map(|context| entry(context, &rule, "always"));
        assert_eq!(Table::new(&entries[..2]).expect("400 tests").tests().len(), 400);
        let error = Table::new(&entries).expect_err("600 tests");
        assert_eq!(error, TableError::Full { context: 3, tests: 200, left: 112 });
        assert!(error.to_string().starts_with("context 3 needs 200 tests, 112 of 512 are left: "), "{error}");
        let error = TableError::Full { context: 0, tests: 200, left: 112 };
        assert!(error.to_string().starts_with("the new context needs 200 tests, "), "{error}");
        assert!(error.to_string().contains("112 of 512 are left"), "{error}");
    }
}
