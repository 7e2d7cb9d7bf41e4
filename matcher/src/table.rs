//! Contexts in order of priority, and which of them a frame belongs to.

use spin_abi::rules::{MAX_TESTS, Test};

use crate::compile::{CompileError, compile};
use crate::evaluate::any_rule_holds;
use crate::headers::Headers;
use crate::key::{KeySpec, MessageKey};
use crate::plain::PlainRules;
use crate::rule::{Eom, Rules};

/// One context's matching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableEntry {
    /// The context's id.
    pub context: u32,
    /// Which frames are the context's, unless an earlier one takes them.
    pub rules: Rules,
    /// Which of those are their message's last.
    pub eom: Eom,
    /// What names their message.
    pub key: KeySpec,
}

/// Why a table could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A context's rules alone are too many.
    #[error("{}: {source}", of(*context))]
    Rules {
        /// Whose rules.
        context: u32,
        /// What was wrong.
        source: CompileError,
    },
    /// A context's end-of-message rules alone are too many.
    #[error("{}, end of message: {source}", of(*context))]
    Eom {
        /// Whose predicate.
        context: u32,
        /// What was wrong.
        source: CompileError,
    },
    /// All contexts' rules together are too many.
    #[error(
        "{} needs {tests} tests, {left} of {MAX_TESTS} are left: \
         remove a context or use fewer rules, prefixes instead of addresses, or ranges",
        of(*context)
    )]
    Full {
        /// The first context that did not fit.
        context: u32,
        /// Tests of its rules.
        tests: usize,
        /// Tests left by the contexts before it.
        left: usize,
    },
}

/// Names a context; one that is not installed yet has no id.
fn of(context: u32) -> String {
    if context == 0 { "the new context".to_owned() } else { format!("context {context}") }
}

/// What a frame is to its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// The context's id.
    pub context: u32,
    /// Its place in the table.
    pub index: usize,
    /// Names the message among the context's.
    pub key: MessageKey,
    /// The frame is its message's last.
    pub eom: bool,
}

/// Compiled matching of all contexts. Immutable: a change of contexts builds another one.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Rules of all contexts, in order.
    tests: Vec<Test>,
    contexts: Vec<Context>,
}

#[derive(Clone, Debug)]
struct Context {
    id: u32,
    /// End of its rules in `Table::tests`; they start where those of the context before end.
    end: usize,
    eom: CompiledEom,
    key: KeySpec,
    /// That is the flow alone.
    key_is_flow: bool,
    /// Its rules, as they are to plain frames,
    plain_rules: PlainRules,
    /// and its end of message.
    plain_eom: PlainRules,
}

impl Context {
    /// What `found` makes of the message's key, and of whether it is the last one, of a plain frame of this context's.
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
    /// Compiles `entries`; earlier ones take precedence.
    ///
    /// # Errors
    /// When they need more than [`MAX_TESTS`] tests; the table in use is best kept then.
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

    /// The first context whose rules hold for `frame`: what [`Table::match_frame`] finds, sooner for most frames. Returns what `found`
    /// makes of its place in the table, the message's key, and whether the frame is the message's last.
    #[inline(always)]
    pub fn find<R>(&self, frame: &[u8], found: impl FnOnce(usize, MessageKey, bool) -> R) -> Option<R> {
        let Some(end) = Headers::plain_end(frame) else {
            let Match { index, key, eom, .. } = self.find_any(frame)?;
            return Some(found(index, key, eom));
        };
        // Of several the first one gets its frames sooner.
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

    /// The first context whose rules hold for `frame`, whose headers are `headers`. Allocates nothing.
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
        assert!(error.to_string().contains("112 of 512 are left"), "{error}");
    }
}
