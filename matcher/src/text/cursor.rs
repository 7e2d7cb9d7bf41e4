//! A position in a text, and errors that point at it.

/// Maximum number of characters of the user's text that an error repeats.
const QUOTED: usize = 24;

/// Text that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct ParseError {
    /// Position in characters, from 1.
    pub column: usize,
    /// Expected text, or the defect.
    pub message: String,
}

/// Rest of a text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    /// Position, on a character boundary.
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut cursor = Self { text, at: 0 };
        cursor.skip_space();
        cursor
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn at_end(&self) -> bool {
        self.rest().is_empty()
    }

    /// Consumes `length` bytes, which end on a character boundary, and the space after them.
    fn advance(&mut self, length: usize) {
        self.at += length;
        self.skip_space();
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// The longest run of `wanted` characters at the cursor, possibly empty. Consumes nothing.
    fn run(&self, wanted: fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        &rest[..rest.find(|c| !wanted(c)).unwrap_or(rest.len())]
    }

    /// The name at the cursor. Consumes nothing.
    pub(super) fn peek_name(&self) -> &'a str {
        self.run(|c| c.is_ascii_alphanumeric() || c == '-')
    }

    /// Consumes the address at the cursor, with or without a prefix length.
    pub(super) fn address(&mut self) -> &'a str {
        let word = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '/' | '-' | '%'));
        self.advance(word.len());
        word
    }

    /// Consumes the name `name` if it is at the cursor.
    pub(super) fn eat_name(&mut self, name: &str) -> bool {
        let here = self.peek_name() == name;
        if here {
            self.advance(name.len());
        }
        here
    }

    /// Consumes `symbol` if it is at the cursor.
    pub(super) fn eat(&mut self, symbol: &str) -> bool {
        let here = self.rest().starts_with(symbol);
        if here {
            self.advance(symbol.len());
        }
        here
    }

    /// Consumes `symbol`, which must be at the cursor.
    pub(super) fn expect(&mut self, symbol: &str) -> Result<(), ParseError> {
        if self.eat(symbol) { Ok(()) } else { Err(self.expected(&format!("`{symbol}`"))) }
    }

    /// Consumes a number of at most `limit`, decimal or hexadecimal with `0x`. `what` names it in the error.
    pub(super) fn number(&mut self, what: &str, limit: u32) -> Result<u32, ParseError> {
        let word = self.run(|c| c.is_ascii_alphanumeric());
        let parsed = match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => word.parse(),
        };
        match parsed {
            Ok(number) if number <= limit => {
                self.advance(word.len());
                Ok(number)
            }
            _ => Err(self.expected(&format!("{what} (0 to {limit})"))),
        }
    }

    /// [`Self::number`] up to 255.
    pub(super) fn byte(&mut self, what: &str) -> Result<u8, ParseError> {
        self.number(what, u8::MAX.into()).map(|number| number as u8)
    }

    /// [`Self::number`] up to 65535.
    pub(super) fn half(&mut self, what: &str) -> Result<u16, ParseError> {
        self.number(what, u16::MAX.into()).map(|number| number as u16)
    }

    /// An error at this position.
    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError { column: self.text[..self.at].chars().count() + 1, message: message.into() }
    }

    /// An error at this position with the expected and the actual text.
    pub(super) fn expected(&self, what: &str) -> ParseError {
        let word = self.run(|c| !c.is_whitespace());
        let mut quoted: String = word.chars().take(QUOTED).collect();
        if quoted.len() < word.len() {
            quoted.push('…');
        }
        let found = if word.is_empty() { "the end".to_owned() } else { format!("`{quoted}`") };
        self.error(format!("expected {what}, found {found}"))
    }
}
