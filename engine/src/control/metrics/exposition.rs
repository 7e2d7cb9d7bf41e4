//! Counters and histograms in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>). Each family has `# HELP`, `# TYPE`, then its
//! samples.

use std::fmt::{Display, Write};

use spin_abi::control::{ContextInfo, LatencyInfo, Stats, ThreadInfo};
use spin_abi::counters::{Counter, ENGINE_ONLY, nic_meaning};

/// All values of [`Stats`].
pub fn text(stats: &Stats) -> String {
    let mut text = Text::default();
    text.family("spind_info", "gauge", "spind and its NIC; always 1");
    text.sample("spind_info", &[("version", env!("CARGO_PKG_VERSION")), ("nic", &stats.nic)], 1);
    text.family("spind_contexts", "gauge", "execution contexts installed");
    text.sample("spind_contexts", &[], stats.contexts.len());
    threads(&mut text, &stats.threads);
    for (name, value) in stats.nic_counters.iter() {
        let full = format!("spind_nic_{}_total", word(name));
        text.family(&full, "counter", nic_meaning(name).unwrap_or("counter of the NIC queues"));
        text.sample(&full, &[], value);
    }
    contexts(&mut text, &stats.contexts);
    context_latencies(&mut text, &stats.contexts);
    latencies(&mut text, &stats.latencies);
    text.0
}

/// Counters of the engine by thread. They include those of the contexts.
fn threads(text: &mut Text, threads: &[ThreadInfo]) {
    for counter in Counter::ALL {
        let name = format!("spind_engine_{}_total", counter.name());
        text.family(&name, "counter", counter.meaning());
        for (index, thread) in threads.iter().enumerate() {
            let clusters = match thread.clusters {
                (first, last) if first == last => first.to_string(),
                (first, last) => format!("{first}-{last}"),
            };
            text.sample(
                &name,
                &[("thread", &index.to_string()), ("unit", &thread.unit.to_string()), ("clusters", &clusters)],
                thread.counters.get(*counter),
            );
        }
    }
}

fn contexts(text: &mut Text, contexts: &[ContextInfo]) {
    for counter in Counter::ALL {
        // Show counters that are still 0, so that Prometheus sees the first count as a change.
        let samples = contexts.iter().filter_map(|context| {
            let counted = context.counters.named(counter.name());
            let value = counted.or_else(|| (!ENGINE_ONLY.contains(counter)).then_some(0))?;
            Some((context, value))
        });
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            continue;
        }
        let name = format!("spind_context_{}_total", counter.name());
        text.family(&name, "counter", counter.meaning());
        for (context, value) in samples {
            text.sample(&name, &[("context", &context.context.to_string()), ("name", &context.name)], value);
        }
    }
}

/// Latencies of contexts that ran. These are summaries: 15 series for each context, where histograms would be 84.
fn context_latencies(text: &mut Text, contexts: &[ContextInfo]) {
    let mut all = contexts.iter().flat_map(|context| context.latencies.iter().map(move |of| (context, of))).peekable();
    if all.peek().is_none() {
        return;
    }
    let name = "spind_context_latency_seconds";
    text.family(
        name,
        "summary",
        "spind_latency_seconds by context; quantiles since its installation, less than an eighth too high",
    );
    for (context, latency) in all {
        let id = context.context.to_string();
        let labels = [("context", id.as_str()), ("name", &context.name), ("kind", &latency.name)];
        let LatencyInfo { count, sum_ns, p50_ns, p99_ns, p999_ns, .. } = *latency;
        for (quantile, value) in [("0.5", p50_ns), ("0.99", p99_ns), ("0.999", p999_ns)] {
            let [context, name, kind] = labels;
            text.sample(
                "spind_context_latency_seconds",
                &[context, name, kind, ("quantile", quantile)],
                seconds(value),
            );
        }
        text.sample(&format!("{name}_sum"), &labels, seconds(sum_ns));
        text.sample(&format!("{name}_count"), &labels, count);
    }
}

fn latencies(text: &mut Text, latencies: &[LatencyInfo]) {
    let name = "spind_latency_seconds";
    text.family(
        name,
        "histogram",
        "time of packets from arrival to release (total), of sampled tasks until their handler starts (queueing) and in it (handler)",
    );
    for latency in latencies {
        let kind = ("kind", latency.name.as_str());
        for &(end, count) in &latency.ranges {
            text.sample(&format!("{name}_bucket"), &[kind, ("le", &seconds(end))], count);
        }
        text.sample(&format!("{name}_bucket"), &[kind, ("le", "+Inf")], latency.count);
        text.sample(&format!("{name}_sum"), &[kind], seconds(latency.sum_ns));
        text.sample(&format!("{name}_count"), &[kind], latency.count);
    }
}

/// Nanoseconds as seconds, with all digits.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A name as part of a metric's name.
fn word(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        match labels.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{}}} {value}", labels.join(","))),
        }
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Escapes a label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::{escaped, seconds, text, word};
    use spin_abi::control::{ContextInfo, LatencyInfo, Stats, ThreadInfo};
    use spin_abi::counter_values::Counters;

    #[test]
    fn values_and_labels() {
        assert_eq!(
            [0, 1, 100, 1_500_000_000, 10_000_000_000].map(seconds),
            ["0", "0.000000001", "0.0000001", "1.5", "10"]
        );
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        assert_eq!(word("rx-frames 2"), "rx_frames_2");
    }

    #[test]
    fn threads_and_histograms() {
        let thread = |clusters, value| ThreadInfo {
            clusters,
            counters: Counters::from_iter([("rx_packets", value)]),
            ..ThreadInfo::default()
        };
        let total = LatencyInfo {
            name: "total".into(),
            count: 3,
            sum_ns: 2_000_000_100,
            ranges: vec![(100, 1), (1_000, 2)],
            ..LatencyInfo::default()
        };
        let stats =
            Stats { threads: vec![thread((0, 1), 5), thread((2, 2), 7)], latencies: vec![total], ..Stats::default() };
        let text = text(&stats);
        for line in [
            "# TYPE spind_engine_rx_packets_total counter",
            "spind_engine_rx_packets_total{thread=\"0\",unit=\"0\",clusters=\"0-1\"} 5",
            "spind_engine_rx_packets_total{thread=\"1\",unit=\"0\",clusters=\"2\"} 7",
            "spind_latency_seconds_bucket{kind=\"total\",le=\"0.0000001\"} 1",
            "spind_latency_seconds_bucket{kind=\"total\",le=\"+Inf\"} 3",
            "spind_latency_seconds_sum{kind=\"total\"} 2.0000001",
            "spind_latency_seconds_count{kind=\"total\"} 3",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in\n{text}");
        }
        assert!(!text.contains("spind_context_"), "without contexts there is nothing to tell of them");
    }
    #[test]
    fn a_context_that_ran_has_a_summary_of_each_latency() {
        let queueing = LatencyInfo {
            name: "queueing".into(),
            count: 2,
            sum_ns: 30,
            p50_ns: 10,
            p99_ns: 20,
            p999_ns: 20,
            ..LatencyInfo::default()
        };
        let ran = ContextInfo { context: 3, name: "echo".into(), latencies: vec![queueing], ..ContextInfo::default() };
        let stats = Stats { contexts: vec![ContextInfo::default(), ran], ..Stats::default() };
        let text = text(&stats);
        let of = "context=\"3\",name=\"echo\",kind=\"queueing\"";
        let expected = [
            "# TYPE spind_context_latency_seconds summary".to_owned(),
            format!("spind_context_latency_seconds{{{of},quantile=\"0.5\"}} 0.00000001"),
            format!("spind_context_latency_seconds{{{of},quantile=\"0.99\"}} 0.00000002"),
            format!("spind_context_latency_seconds{{{of},quantile=\"0.999\"}} 0.00000002"),
            format!("spind_context_latency_seconds_sum{{{of}}} 0.00000003"),
            format!("spind_context_latency_seconds_count{{{of}}} 2"),
        ];
        let told: Vec<_> =
            text.lines().filter(|line| line.contains("_context_latency") && !line.contains("HELP")).collect();
        assert_eq!(told, expected);
    }
}
