//! Values of counters by name, as they are sent.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::counters::Counter;

/// Values of counters by name. A peer of another version may have counters that this one does not know.
///
/// In a message they are a list of pairs, `[["rx_packets", 5]]`, as older peers expect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counters(Vec<(String, u64)>);

impl Counters {
    /// The value of an engine counter. A counter that is absent is 0: contexts list only others.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.named(counter.name()).unwrap_or(0)
    }

    /// The value of the counter of that name, such as one of the NIC. `None`: it is absent.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<u64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Names and values, in the order in which they were sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Adds values to those of the same names, and appends counters that are not yet here.
    pub fn add(&mut self, others: &Self) {
        for (name, value) in others.iter() {
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += value,
                None => self.0.push((name.into(), value)),
            }
        }
    }
}

impl<Name: Into<String>> FromIterator<(Name, u64)> for Counters {
    fn from_iter<I: IntoIterator<Item = (Name, u64)>>(values: I) -> Self {
        Self(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;
    use crate::counters::Counter;

    #[test]
    fn values_are_found_by_counter_and_by_name() {
        let counters = Counters::from_iter([("faults", 3), ("of_a_later_version", 4)]);
        assert_eq!((counters.get(Counter::Faults), counters.get(Counter::Messages)), (3, 0));
        assert_eq!((counters.named("of_a_later_version"), counters.named("messages")), (Some(4), None));
    }

    #[test]
    fn counters_add_up_by_name() {
        let mut sums = Counters::from_iter([("a", 1), ("b", 2)]);
        sums.add(&Counters::from_iter([("b", 5), ("c", 7)]));
        assert_eq!(sums, Counters::from_iter([("a", 1), ("b", 7), ("c", 7)]));
    }
}
