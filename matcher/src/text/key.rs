//! Message keys as text: `flow`, `flow + payload[2:4]`, `ip[12:8], payload[0:4]`, `fpspin`.

use core::fmt;
use core::str::FromStr;

use super::cursor::{Cursor, ParseError};
use super::word::{BASES, bracketed_base, offset};
use crate::key::{KeyBytes, KeySpec};

impl FromStr for KeySpec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut cursor = Cursor::new(text);
        let start = cursor;
        if cursor.eat_name("fpspin") {
            return if cursor.at_end() { Ok(Self::fpspin()) } else { Err(cursor.expected("the end")) };
        }
        let (mut flow, mut parts) = (false, Vec::new());
        loop {
            if !flow && parts.is_empty() && cursor.eat_name("flow") {
                flow = true;
            } else {
                parts.push(bytes(&mut cursor)?);
            }
            if !cursor.eat("+") && !cursor.eat(",") {
                break;
            }
        }
        if !cursor.at_end() {
            return Err(cursor.expected("`+`, `,` or the end"));
        }
        Self::new(flow, parts).map_err(|error| start.error(error.to_string()))
    }
}

fn bytes(cursor: &mut Cursor<'_>) -> Result<KeyBytes, ParseError> {
    let Some(base) = bracketed_base(cursor) else {
        return Err(cursor.expected("`flow` (once, first) or bytes like `payload[2:4]`"));
    };
    let offset = offset(cursor)?;
    cursor.expect(":")?;
    let length = cursor.byte("a number of bytes")?;
    cursor.expect("]")?;
    Ok(KeyBytes { base, offset, length })
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_fpspin() {
            return f.write_str("fpspin");
        }
        let separator = if self.flow() { " + " } else { ", " };
        let flow = self.flow().then(|| "flow".to_owned());
        let parts = flow.into_iter().chain(self.parts().iter().map(ToString::to_string));
        f.write_str(&parts.collect::<Vec<_>>().join(separator))
    }
}

impl fmt::Display for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = BASES.iter().find(|(base, _)| *base == self.base).map_or("kind", |(_, name)| name);
        write!(f, "{name}[{}:{}]", self.offset, self.length)
    }
}
