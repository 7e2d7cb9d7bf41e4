//! Rules, end-of-message predicates and message keys as text, read and printed.
//!
//! The grammar is in the crate's documentation. Printed text reads back as the same value.

mod cursor;
mod key;
mod print;
mod rules;
mod word;

pub use cursor::ParseError;

use crate::rule::{Eom, Rules};

/// One of several texts could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {number}: {source}")]
pub struct ListError {
    /// Number of the text, from 1.
    pub number: usize,
    /// Error in that text.
    pub source: ParseError,
}

impl Rules {
    /// Reads several texts as alternatives. An empty list is `never`.
    ///
    /// # Errors
    /// The first text that is not a rule.
    pub fn parse_list<S: AsRef<str>>(texts: &[S]) -> Result<Self, ListError> {
        let mut all = Self::default();
        for (index, text) in texts.iter().enumerate() {
            let rules: Self = text.as_ref().parse().map_err(|source| ListError { number: index + 1, source })?;
            all.rules.extend(rules.rules);
        }
        Ok(all)
    }
}

impl Eom {
    /// Reads several texts as alternatives: `always`, `never` or rules.
    ///
    /// # Errors
    /// The first text that is none of them.
    pub fn parse_list<S: AsRef<str>>(texts: &[S]) -> Result<Self, ListError> {
        match texts {
            [] => Ok(Self::Never),
            [text] => text.as_ref().parse().map_err(|source| ListError { number: 1, source }),
            _ => Rules::parse_list(texts).map(Self::When),
        }
    }
}
