//! Parsing the output of iputils' `ping`.

use crate::outcome::{Outcome, RoundTrips};
use std::time::Duration;

/// The text is not the output of a completed `ping`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no summary line `N packets transmitted, M received` in ping's output")]
pub struct NoSummary;

/// Parses the output of `ping` (in the C locale). Replies marked `DUP!` are duplicates. A reply is wrong if its data
/// differs from the request's (`wrong data byte`), or if it was reported as an error or truncated.
///
/// # Errors
/// [`NoSummary`] when the output has no summary.
pub fn parse(text: &str) -> Result<Outcome, NoSummary> {
    let mut outcome = Outcome { name: "ping".into(), ..Outcome::default() };
    let mut times = RoundTrips::default();
    for line in text.lines() {
        if line.contains("(DUP!)") {
            outcome.duplicate += 1;
        } else if let Some(time) = reply_time(line) {
            times.record(time);
        }
        if ["wrong data byte", "wrong total length", "(truncated)", "(BAD CHECKSUM)"]
            .iter()
            .any(|bad| line.contains(bad))
        {
            outcome.wrong += 1;
        }
    }
    let (sent, received) = text.lines().find_map(summary).ok_or(NoSummary)?;
    outcome.sent = sent;
    outcome.answered = received.saturating_sub(outcome.wrong);
    outcome.lost = sent.saturating_sub(received);
    outcome.set_times(&times);
    Ok(outcome)
}

/// Parses a line such as `64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.057 ms`.
fn reply_time(line: &str) -> Option<Duration> {
    let (_, rest) = line.split_once(" time=")?;
    let milliseconds: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}

/// Parses a line such as `1000 packets transmitted, 999 received, 0.1% packet loss, time 2019ms`.
fn summary(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split(", ");
    let sent = fields.next()?.strip_suffix(" packets transmitted")?.parse().ok()?;
    let received = fields.next()?.strip_suffix(" received")?.parse().ok()?;
    Some((sent, received))
}

#[cfg(test)]
mod tests {
    use super::{NoSummary, parse};

    const GOOD: &str = "PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.
64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.050 ms
64 bytes from 10.0.0.2: icmp_seq=2 ttl=64 time=0.100 ms

--- 10.0.0.2 ping statistics ---
2 packets transmitted, 2 received, 0% packet loss, time 1003ms
rtt min/avg/max/mdev = 0.031/0.046/0.061/0.015 ms
";

    #[test]
    fn a_good_run() {
        let outcome = parse(GOOD).unwrap();
        assert!(outcome.all_answered());
        assert!((outcome.p50_us.unwrap() - 50.0).abs() < 0.5 && (outcome.p99_us.unwrap() - 100.0).abs() < 0.5);
    }

    #[test]
    fn losses_duplicates_and_wrong_data() {
        let text = GOOD
            .replace("2 packets transmitted, 2 received, 0%", "5 packets transmitted, 2 received, +1 duplicates, 60%");
        let text = text.replace("0.100 ms", "0.100 ms (DUP!)\nwrong data byte #20 should be 0x14 but was 0x0");
        let outcome = parse(&text).unwrap();
        assert_eq!((outcome.sent, outcome.answered, outcome.lost), (5, 1, 3));
        assert_eq!((outcome.wrong, outcome.duplicate), (1, 1));
    }

    #[test]
    fn an_unfinished_run() {
        assert_eq!(parse("PING 10.0.0.2 (10.0.0.2) 56(84) bytes of data.\n"), Err(NoSummary));
        assert_eq!(parse(""), Err(NoSummary));
    }
}
