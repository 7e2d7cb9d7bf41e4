//! The error of a value on the command line.

/// What was written, and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: expected {expected}")]
pub struct BadValue {
    text: String,
    expected: &'static str,
}

/// The error of `text`.
#[must_use]
pub fn bad(text: &str, expected: &'static str) -> BadValue {
    BadValue { text: text.to_owned(), expected }
}
