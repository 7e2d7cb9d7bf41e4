//! Statistics as JSON objects, so that programs find a value by its name: `jq .engine.payload_runs`.

use libspin::{ContextInfo, Counter, Counters, ENGINE_ONLY, LatencyInfo, Stats};
use serde::Serialize;
use serde_json::{Map, Result, Value, json, to_value};

/// The output of `stats`. Contexts are found by id, since names are unique for one user only.
pub fn stats(stats: &Stats) -> Result<Value> {
    let Stats { nic, engine, threads, nic_counters, latencies: measured, contexts } = stats;
    let threads: Result<Vec<_>> = threads.iter().map(|thread| with_counters(thread, &thread.counters)).collect();
    let contexts: Result<Map<_, _>> = contexts.iter().map(|of| Ok((of.context.to_string(), context(of)?))).collect();
    Ok(json!({
        "nic": nic,
        "engine": counters(engine),
        "threads": threads?,
        "nic_counters": counters(nic_counters),
        "latencies": latencies(measured)?,
        "contexts": contexts?,
    }))
}

/// The output of `list`: an array, since the order is that of priority.
pub fn contexts(contexts: &[ContextInfo]) -> Result<Value> {
    contexts.iter().map(context).collect()
}

/// The output of `stats --json=1`: counters are lists of pairs, and contexts have no latencies.
pub fn old_stats(mut stats: Stats) -> Result<Value> {
    stats.contexts.iter_mut().for_each(|context| context.latencies.clear());
    to_value(stats)
}

/// Counters by name.
pub fn counters(counters: &Counters) -> Value {
    counters.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// All counters that a context has. spind sends those that are not 0.
pub fn context_counters(context: &ContextInfo) -> Counters {
    let is_shown = |counter: &&Counter| !ENGINE_ONLY.contains(counter) && context.shows(**counter);
    let mut all: Counters = Counter::ALL.iter().filter(is_shown).map(|counter| (counter.name(), 0)).collect();
    all.add(&context.counters);
    all
}

fn context(context: &ContextInfo) -> Result<Value> {
    let mut object = with_counters(context, &context_counters(context))?;
    if !context.latencies.is_empty() {
        object["latencies"] = latencies(&context.latencies)?;
    }
    Ok(object)
}

fn latencies(latencies: &[LatencyInfo]) -> Result<Value> {
    latencies.iter().map(|latency| Ok((latency.name.clone(), to_value(latency)?))).collect()
}

fn with_counters(of: &impl Serialize, values: &Counters) -> Result<Value> {
    let mut object = to_value(of)?;
    object["counters"] = counters(values);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::{contexts, old_stats, stats};
    use libspin::{ContextInfo, Counters, LatencyInfo, Stats, ThreadInfo};
    use serde_json::{Value, json};

    fn all() -> Stats {
        let latency = |name: &str, p99_ns| LatencyInfo { name: name.into(), p99_ns, ..LatencyInfo::default() };
        let context = |id, name: &str| ContextInfo {
            context: id,
            name: name.into(),
            counters: Counters::from_iter([("faults", 4), ("of_a_later_version", 6)]),
            latencies: vec![latency("total", 9)],
            ..ContextInfo::default()
        };
        Stats {
            nic: "loopback".into(),
            engine: Counters::from_iter([("rx_packets", 5), ("faults", 0)]),
            threads: vec![ThreadInfo {
                clusters: (0, 3),
                counters: Counters::from_iter([("rx_packets", 5)]),
                ..ThreadInfo::default()
            }],
            nic_counters: Counters::from_iter([("rx_frames", 7)]),
            latencies: vec![LatencyInfo { ranges: vec![(100, 1)], ..latency("total", 8) }],
            contexts: vec![context(12, "echo"), ContextInfo { hidden: true, ..context(3, "") }],
        }
    }

    #[test]
    fn values_are_found_by_name() {
        let object = stats(&all()).unwrap();
        for (path, expected) in [
            ("/nic", json!("loopback")),
            ("/engine/rx_packets", json!(5)),
            ("/engine/faults", json!(0)),
            ("/nic_counters/rx_frames", json!(7)),
            ("/threads/0/counters/rx_packets", json!(5)),
            ("/threads/0/clusters/1", json!(3)),
            ("/latencies/total/p99_ns", json!(8)),
            ("/latencies/total/ranges/0", json!([100, 1])),
            ("/contexts/12/name", json!("echo")),
            ("/contexts/12/counters/faults", json!(4)),
            ("/contexts/12/counters/of_a_later_version", json!(6)),
            ("/contexts/12/counters/payload_runs", json!(0)),
            ("/contexts/12/latencies/total/p99_ns", json!(9)),
            ("/contexts/3/counters/drop_share", json!(0)),
        ] {
            assert_eq!(object.pointer(path), Some(&expected), "{path}");
        }
        // The engine alone counts received packets; of a hidden context nothing is known but its pressure.
        for absent in ["/contexts/12/counters/rx_packets", "/contexts/3/counters/payload_runs"] {
            assert_eq!(object.pointer(absent), None, "{absent}");
        }
    }

    #[test]
    fn contexts_are_listed_in_order_of_priority() {
        let list = contexts(&all().contexts).unwrap();
        let ids: Vec<_> = list.as_array().unwrap().iter().map(|context| &context["context"]).collect();
        assert_eq!((ids, &list[0]["counters"]["faults"]), (vec![&json!(12), &json!(3)], &json!(4)));
    }

    #[test]
    fn the_old_form_has_pairs_and_no_latencies_of_contexts() {
        let old = old_stats(all()).unwrap();
        assert_eq!(old["engine"], json!([["rx_packets", 5], ["faults", 0]]));
        assert_eq!(old["contexts"][0]["counters"], json!([["faults", 4], ["of_a_later_version", 6]]));
        assert_eq!(old["contexts"][0]["context"], 12);
        assert_eq!(old["latencies"][0]["name"], "total");
        assert!(old["contexts"].as_array().unwrap().iter().all(|context| context.get("latencies").is_none()));
        assert!(matches!(old["threads"][0]["counters"], Value::Array(_)));
    }
}
