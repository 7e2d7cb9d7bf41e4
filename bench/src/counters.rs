//! Reading numbers from the output of `spinctl stats --json`.

use std::collections::HashMap;

use serde::Deserialize;

/// Values by name.
type Counters = HashMap<String, u64>;

/// The counters read here; other fields are ignored.
#[derive(Debug, Deserialize)]
pub struct Stats {
    engine: Counters,
    nic_counters: Counters,
    /// Contexts by id.
    contexts: HashMap<String, Context>,
}

#[derive(Debug, Deserialize)]
struct Context {
    name: String,
    counters: Counters,
}

/// Reason why a number cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not the output of `spinctl stats --json`.
    #[error("not the output of `spinctl stats --json`: {0}")]
    Json(#[from] serde_json::Error),
    /// The context does not exist.
    #[error("no context named {0} is installed")]
    Context(String),
    /// The counter does not exist: engine and NIC list all counters, including zeros.
    #[error("neither engine nor NIC has a counter {0}")]
    Counter(String),
}

/// Returns a counter of a context, or of engine and NIC. A counter that a context does not have is 0.
///
/// # Errors
/// See [`Error`].
pub fn counter(json: &str, context: Option<&str>, name: &str) -> Result<u64, Error> {
    let stats: Stats = serde_json::from_str(json)?;
    let Some(context) = context else {
        let found = stats.engine.get(name).or_else(|| stats.nic_counters.get(name));
        return found.copied().ok_or_else(|| Error::Counter(name.into()));
    };
    let found = stats.contexts.values().find(|other| other.name == context);
    let value = |found: &Context| found.counters.get(name).copied().unwrap_or(0);
    found.map(value).ok_or_else(|| Error::Context(context.into()))
}

#[cfg(test)]
mod tests {
    use super::{Error, counter};

    const JSON: &str = r#"{"nic":"veth","engine":{"faults":2,"matched":0},"nic_counters":{"passed_kernel":7},
        "contexts":{"1":{"context":1,"name":"icmp_echo","uid":0,"counters":{"payload_runs":5}}}}"#;

    #[test]
    fn finds_them_all() {
        assert_eq!(counter(JSON, None, "faults").unwrap(), 2);
        assert_eq!(counter(JSON, None, "passed_kernel").unwrap(), 7);
        assert_eq!(counter(JSON, Some("icmp_echo"), "payload_runs").unwrap(), 5);
        assert_eq!(counter(JSON, Some("icmp_echo"), "faults").unwrap(), 0);
    }

    #[test]
    fn says_what_is_not_there() {
        assert!(matches!(counter(JSON, Some("other"), "faults"), Err(Error::Context(_))));
        assert!(matches!(counter(JSON, None, "none"), Err(Error::Counter(_))));
        assert!(matches!(counter("{}", None, "faults"), Err(Error::Json(_))));
    }
}
