//! Names of handlers, for images that do not declare their handlers.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// The handlers of a context, each by a symbol of its image or by an address.
///
/// The text form is `hh=NAME,ph=NAME,th=NAME,mem=NAME`, in any order. If no handler is named, they are those that the image declares. An
/// address is a decimal number, or a hexadecimal one with `0x`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HandlerNames {
    /// Header, payload and completion handler. `None`: the context has no such handler.
    pub handlers: [Option<String>; 3],
    /// Start of handler memory, in or at the end of the image's own. `None`: behind the image's own.
    pub handler_mem: Option<String>,
}

/// Words for the parts, in the order of [`HandlerNames::parts`].
const WORDS: [&str; 4] = ["hh", "ph", "th", "mem"];

impl HandlerNames {
    fn parts(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let names = self.handlers.iter().chain([&self.handler_mem]);
        WORDS.into_iter().zip(names).filter_map(|(word, name)| Some((word, name.as_ref()?)))
    }

    fn part(&mut self, word: &str) -> Option<&mut Option<String>> {
        match WORDS.iter().position(|known| *known == word)? {
            at @ 0..3 => Some(&mut self.handlers[at]),
            _ => Some(&mut self.handler_mem),
        }
    }
}

impl fmt::Display for HandlerNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (word, name)) in self.parts().enumerate() {
            write!(f, "{}{word}={name}", if place > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Error in the text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadHandlerNames(String);

impl fmt::Display for BadHandlerNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; expected hh=NAME,ph=NAME,th=NAME (those that there are; also mem=NAME)", self.0)
    }
}

impl core::error::Error for BadHandlerNames {}

impl FromStr for HandlerNames {
    type Err = BadHandlerNames;

    fn from_str(text: &str) -> Result<Self, BadHandlerNames> {
        let mut names = Self::default();
        for item in text.split(',') {
            let (word, name) = item.split_once('=').unwrap_or((item, ""));
            if name.is_empty() {
                return Err(BadHandlerNames(format!("{item:?} names nothing")));
            }
            let part = names.part(word).ok_or_else(|| BadHandlerNames(format!("{word:?} is no handler")))?;
            if part.replace(name.to_owned()).is_some() {
                return Err(BadHandlerNames(format!("{word:?} is given twice")));
            }
        }
        Ok(names)
    }
}

impl TryFrom<String> for HandlerNames {
    type Error = BadHandlerNames;

    fn try_from(text: String) -> Result<Self, BadHandlerNames> {
        text.parse()
    }
}

impl From<HandlerNames> for String {
    fn from(names: HandlerNames) -> Self {
        names.to_string()
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::HandlerNames;

    #[test]
    fn names_are_read_as_they_are_written() {
        let names: HandlerNames = "th=0x1d000040,ph=work.llvm.7,mem=table".parse().unwrap();
        let [hh, ph, th] = names.handlers.each_ref().map(|name| name.as_deref().unwrap_or_default());
        assert_eq!((hh, ph, th), ("", "work.llvm.7", "0x1d000040"));
        assert_eq!(names.handler_mem.as_deref(), Some("table"));
        assert_eq!(names.to_string(), "ph=work.llvm.7,th=0x1d000040,mem=table");
        assert_eq!(names.to_string().parse(), Ok(names));
    }

    #[test]
    fn an_error_says_which_part_is_wrong() {
        for (text, start) in [
            ("", "\"\" names nothing"),
            ("hh", "\"hh\" names nothing"),
            ("hh=", "\"hh=\" names nothing"),
            ("hh=a,xh=b", "\"xh\" is no handler"),
            ("hh=a,hh=b", "\"hh\" is given twice"),
        ] {
            let error = text.parse::<HandlerNames>().unwrap_err().to_string();
            assert!(error.starts_with(start), "{text:?}: {error}");
        }
    }
}
