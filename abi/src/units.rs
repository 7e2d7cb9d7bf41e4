//! Sizes in bytes as people write them: `4096`, `64K`, `16M`, `1G`.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

use serde::de::{Deserializer, Error, Visitor};

/// Text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// Not a number with one of the suffixes.
    NotASize(String),
    /// Above the largest size that fits.
    TooLarge(String),
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASize(text) => write!(f, "{text:?} is not a size such as 4096, 64K, 16M or 1G"),
            Self::TooLarge(text) => write!(f, "{text:?} is too large"),
        }
    }
}

impl core::error::Error for SizeError {}

/// Parses a size in bytes. The suffixes K, M and G, in either case, stand for 2^10, 2^20 and 2^30.
///
/// # Errors
/// See [`SizeError`].
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| SizeError::NotASize(text.to_owned()))?;
    number.checked_mul(1 << shift).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

/// Deserializes a size: a number of bytes, or text for [`parse_size`].
///
/// # Errors
/// Neither of these, or more than fits.
pub fn size<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<T, D::Error> {
    let bytes = deserializer.deserialize_any(SizeVisitor)?;
    T::try_from(bytes).map_err(|_| D::Error::custom(format_args!("{bytes} is too large")))
}

/// [`size`] of a key that may be left out.
///
/// # Errors
/// As there.
pub fn optional_size<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<Option<T>, D::Error> {
    size(deserializer).map(Some)
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size in bytes: a number, or text such as \"64M\"")
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes).map_err(|_| E::custom(format_args!("{bytes} is not a size")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        parse_size(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes() {
        for (text, size) in [("4096", 4096), ("64k", 65536), ("64M", 64 << 20), ("2G", 2 << 30)] {
            assert_eq!(parse_size(text), Ok(size));
        }
        for bad in ["", "K", "-1", "1.5M", "10T", "99999999999999999999", "18446744073709551615G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
