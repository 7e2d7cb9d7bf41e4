//! What the tests of several crates share.
#![forbid(unsafe_code)]

mod fuse;
mod lines;

pub use fuse::UnansweredFile;
pub use lines::{Field, check_lines, field_size};

/// Says on standard error that a test, or a part of one, cannot run here, and why.
///
/// # Panics
/// With `SPIN_REQUIRE_ALL=1` in the environment: then nothing may be skipped.
pub fn skip(what: &str) {
    let required = std::env::var_os("SPIN_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "skipped, with SPIN_REQUIRE_ALL=1: {what}");
    eprintln!("SKIPPED: {what}");
}

/// Returns how much a test does: `some`, or with `SPIN_TEST_LONG=1` in the environment `all`. `make test-long` sets it.
#[must_use]
pub fn bounded<T>(some: T, all: T) -> T {
    if std::env::var_os("SPIN_TEST_LONG").is_some_and(|value| value == "1") { all } else { some }
}

/// Returns a number from the environment, or `default` if the variable is not set.
///
/// # Panics
/// When the variable is not a number.
#[must_use]
pub fn from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_required_is_not_skipped() {
        // The environment belongs to the whole process: another one is asked.
        let test = std::env::current_exe().expect("a program");
        let run = |required: &str| {
            let mut command = std::process::Command::new(&test);
            command.args(["--exact", "tests::skips", "--ignored"]).env("SPIN_REQUIRE_ALL", required);
            command.output().expect("it runs").status.success()
        };
        assert_eq!(["0", "1"].map(run), [true, false]);
    }

    #[test]
    #[ignore = "run by the other test, with and without the variable"]
    fn skips() {
        super::skip("nothing");
    }
}
