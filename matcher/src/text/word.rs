//! Reading raw words: `l4[2:2] in 9000..9100`, `payload[0:4] & 0xff000000 = 0x01000000`, `kind & 0xff = 17`.

use spin_abi::rules::Base;

use super::cursor::{Cursor, ParseError};
use crate::rule::{Field, MAX_OFFSET, Range, Width};

/// The bases that have bytes, by name.
pub(super) const BASES: [(Base, &str); 4] =
    [(Base::Frame, "frame"), (Base::Ip, "ip"), (Base::L4, "l4"), (Base::Payload, "payload")];

/// Reads a raw word. `None`, with nothing consumed, when the text is none.
pub(super) fn range(cursor: &mut Cursor<'_>) -> Result<Option<Range>, ParseError> {
    let start = *cursor;
    let Some(field) = field(cursor)? else { return Ok(None) };
    let mask = if cursor.eat("&") { cursor.number("a mask", u32::MAX)? } else { field.width.mask() };
    let (min, max) = bounds(cursor, field, mask)?;
    Range::new(field, mask, min, max).map(Some).map_err(|error| start.error(error.to_string()))
}

fn bounds(cursor: &mut Cursor<'_>, field: Field, mask: u32) -> Result<(u32, u32), ParseError> {
    let start = *cursor;
    if cursor.eat_name("in") {
        let min = cursor.number("a value", field.width.mask())?;
        cursor.expect("..")?;
        return Ok((min, cursor.number("a value", field.width.mask())?));
    }
    if !cursor.eat("==") && !cursor.eat("=") {
        return Err(cursor.expected("`&`, `=` or `in`"));
    }
    let value = cursor.number("a value", field.width.mask())?;
    if mask != 0 && value & !mask != 0 {
        return Err(start.error(format!("can never hold: {value:#x} has bits outside mask {mask:#x}")));
    }
    Ok((value, value))
}

/// Reads `base[offset:width flags]`, or `kind`.
fn field(cursor: &mut Cursor<'_>) -> Result<Option<Field>, ParseError> {
    if cursor.eat_name("kind") {
        return Ok(Some(Field::new(Base::Kind, 0, Width::Four)));
    }
    let Some(base) = bracketed_base(cursor) else { return Ok(None) };
    let offset = offset(cursor)?;
    cursor.expect(":")?;
    let width_at = *cursor;
    let width = match cursor.byte("a width") {
        Ok(1) => Width::One,
        Ok(2) => Width::Two,
        Ok(4) => Width::Four,
        _ => return Err(width_at.expected("a width of 1, 2 or 4 bytes")),
    };
    let mut field = Field::new(base, offset, width);
    field.little_endian = cursor.eat_name("le");
    field.zero_beyond = cursor.eat_name("zero");
    if !cursor.eat("]") {
        return Err(cursor.expected("`]`, `le` or `zero`"));
    }
    Ok(Some(field))
}

/// Consumes a base's name and its opening bracket, or nothing.
pub(super) fn bracketed_base(cursor: &mut Cursor<'_>) -> Option<Base> {
    let mut ahead = *cursor;
    let base = BASES.iter().find(|(_, name)| ahead.eat_name(name)).map(|(base, _)| *base)?;
    ahead.eat("[").then(|| {
        *cursor = ahead;
        base
    })
}

/// Reads an offset from a base.
pub(super) fn offset(cursor: &mut Cursor<'_>) -> Result<u16, ParseError> {
    cursor.number("an offset", MAX_OFFSET.into()).map(|offset| offset as u16)
}
