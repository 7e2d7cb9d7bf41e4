//! Search for an integer in a JSON text, by its tokens.

/// The text ends too early, has another structure, or the member is no integer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    /// A string as written, without its quotes.
    Text(&'t [u8]),
    /// A bracket, comma or colon.
    Mark(u8),
    /// Anything else up to a space, mark or string.
    Word(&'t [u8]),
}

struct Tokens<'t>(&'t [u8]);

impl<'t> Tokens<'t> {
    /// Returns the next token.
    ///
    /// # Errors
    /// The text or a string ended.
    fn next(&mut self) -> Result<Token<'t>, Broken> {
        let is_space = |byte: &u8| b" \t\r\n".contains(byte);
        let start = self.0.iter().position(|byte| !is_space(byte)).ok_or(Broken)?;
        let rest = &self.0[start..];
        let (token, length) = match rest[0] {
            mark @ (b'{' | b'}' | b'[' | b']' | b',' | b':') => (Token::Mark(mark), 1),
            b'"' => {
                let end = end_of_string(rest).ok_or(Broken)?;
                (Token::Text(&rest[1..end]), end + 1)
            }
            _ => {
                let ends = |byte: &u8| is_space(byte) || b"{}[],:\"".contains(byte);
                let end = rest.iter().position(ends).unwrap_or(rest.len());
                (Token::Word(&rest[..end]), end)
            }
        };
        self.0 = &rest[length..];
        Ok(token)
    }

    /// Returns the comma or closing bracket that follows a value.
    fn skip_value(&mut self) -> Result<Token<'t>, Broken> {
        let mut depth = 0;
        loop {
            match self.next()? {
                token @ Token::Mark(b',' | b'}' | b']') if depth == 0 => return Ok(token),
                Token::Mark(b'{' | b'[') => depth += 1,
                Token::Mark(b'}' | b']') => depth -= 1,
                _ => {}
            }
        }
    }
}

/// Returns the place of the quote that ends a string: an even number of backslashes precedes it.
fn end_of_string(text: &[u8]) -> Option<usize> {
    (1..text.len()).find(|&at| {
        let backslashes = text[1..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        text[at] == b'"' && backslashes % 2 == 0
    })
}

/// Returns the integer under the key of the outermost object modulo 2^32. `None`: there is no such key. Members behind it are not
/// looked at.
///
/// # Errors
/// See [`Broken`].
pub(super) fn integer(text: &[u8], key: &str) -> Result<Option<u32>, Broken> {
    let mut tokens = Tokens(text);
    let mut before = tokens.next()?;
    if before != Token::Mark(b'{') {
        return Err(Broken);
    }
    loop {
        let name = match tokens.next()? {
            Token::Text(name) => name,
            // An empty object, but not a comma before its end.
            Token::Mark(b'}') if before == Token::Mark(b'{') => return Ok(None),
            _ => return Err(Broken),
        };
        if tokens.next()? != Token::Mark(b':') {
            return Err(Broken);
        }
        if name == key.as_bytes() {
            return value(&mut tokens).map(Some);
        }
        before = tokens.skip_value()?;
        match before {
            Token::Mark(b',') => {}
            Token::Mark(b'}') => return Ok(None),
            _ => return Err(Broken),
        }
    }
}

fn value(tokens: &mut Tokens<'_>) -> Result<u32, Broken> {
    let Token::Word(word) = tokens.next()? else { return Err(Broken) };
    let Token::Mark(b',' | b'}') = tokens.next()? else { return Err(Broken) };
    let (sign, digits) = word.strip_prefix(b"-").map_or((1, word), |digits| (u32::MAX, digits));
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Broken);
    }
    let digit = |sum: u32, digit: &u8| sum.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'));
    Ok(digits.iter().fold(0, digit).wrapping_mul(sign))
}

#[cfg(test)]
mod tests {
    use super::{Broken, integer};
    use crate::handlers::case::{Case, Handler};
    use crate::handlers::work::json::{ESCAPED, KEY};
    use crate::handlers::work::{HEADERS, Work};
    use serde_json::Value;

    #[test]
    fn keys_at_the_top_level_alone() {
        let found = |text: &str| integer(text.as_bytes(), "k");
        assert_eq!(found(r#" {"a" : {"k":1}, "b\"":"\\", "k" : -12 , "#), Ok(Some(12u32.wrapping_neg())));
        assert_eq!([found("{}"), found(r#"{"a":"k"}"#), found(r#"{"a":[{"k":1}]}"#)], [Ok(None), Ok(None), Ok(None)]);
        for text in
            ["", "[1]", "{", r#"{"a":1,}"#, r#"{"k":1"#, r#"{"k":1.5}"#, r#"{"k":"1"}"#, r#"{"a":"\"}"#, r#"{"a":1]"#]
        {
            assert_eq!(found(text), Err(Broken), "{text}");
        }
    }

    /// Where a JSON library accepts a text, it has the same integer.
    #[test]
    fn a_json_library_agrees() {
        let work = Work::new(Case { handler: Handler::JsonField, size: 512 });
        let mut compared = 0;
        for packet in work.packets.chunks_exact(work.stride) {
            let length = usize::from(u16::from_be_bytes([packet[38], packet[39]])) - 8;
            let text = &packet[HEADERS..HEADERS + length];
            let Ok(Value::Object(object)) = serde_json::from_slice(text) else { continue };
            let expected = match object.get(KEY) {
                // To the library an escaped key is the same one.
                _ if text.windows(ESCAPED.len()).any(|part| part == ESCAPED.as_bytes()) => continue,
                Some(Value::Number(number)) if number.is_i64() => Ok(number.as_i64()),
                Some(_) => Err(Broken),
                None => Ok(None),
            };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "modulo 2^32")]
            let expected = expected.map(|integer| integer.map(|integer| integer as u32));
            assert_eq!(integer(text, KEY), expected, "{}", String::from_utf8_lossy(text));
            compared += 1;
        }
        assert!(compared > 3000, "{compared}");
    }
}
