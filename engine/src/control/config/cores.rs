//! Lists of cores: numbers and ranges, such as `2,3` or `0-3,6`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// Cores in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreList(pub Vec<usize>);

/// Text that is not a list of cores.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a list of cores such as 2,3 or 0-3")]
pub struct BadCores(String);

/// Longest range: more cores than a machine has would only take memory.
const MAX_CORES: usize = 4096;

impl FromStr for CoreList {
    type Err = BadCores;

    fn from_str(text: &str) -> Result<Self, BadCores> {
        let mut cores = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let ends = first.trim().parse::<usize>().ok().zip(last.trim().parse().ok());
            let (first, last) = ends
                .filter(|(first, last)| first <= last && last - first < MAX_CORES)
                .ok_or_else(|| BadCores(text.to_owned()))?;
            cores.extend(first..=last);
        }
        Ok(Self(cores))
    }
}

/// Deserializes a list of numbers, or text.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<usize>, D::Error> {
    deserializer.deserialize_any(ListVisitor)
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = Vec<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cores: a list such as [2, 3], or text such as \"0-3\"")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<usize>, A::Error> {
        let mut cores = Vec::new();
        while let Some(core) = list.next_element()? {
            cores.push(core);
        }
        Ok(cores)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<usize>, E> {
        text.parse::<CoreList>().map(|CoreList(cores)| cores).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::CoreList;

    #[test]
    fn numbers_and_ranges() {
        let cores = |text: &str| text.parse::<CoreList>().map(|CoreList(cores)| cores).ok();
        assert_eq!(cores("2,3"), Some(vec![2, 3]));
        assert_eq!(cores("0-2, 6"), Some(vec![0, 1, 2, 6]));
        for bad in ["", "1-", "-1", "3-1", "a", "1,,2", "0-99999999999"] {
            assert_eq!(cores(bad), None, "{bad}");
        }
    }
}
