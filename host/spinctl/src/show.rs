//! Output as text, and as JSON for programs.

use std::io::{self, Write};

use libspin::{
    Abi, Bill, Capabilities, ContextInfo, Counter, Counters, Guarantees, LatencyInfo, Replayed, RunInfo, Stats,
    ThreadInfo, Tier, TierInfo, UserInfo, Users, nic_meaning,
};
use serde::Serialize;

use crate::args::JsonForm;
use crate::json;

/// Shown in place of a text that spind shows to a context's owner and root only.
pub const HIDDEN: &str = "-";

/// Prints the result of a replay.
pub fn replayed(out: &mut impl Write, replayed: &Replayed) -> io::Result<()> {
    let Replayed { arrived, unmatched, too_long, too_short, sent } = replayed;
    let unmatched = if *unmatched > 0 { format!(" ({unmatched} matched no context)") } else { String::new() };
    writeln!(out, "{arrived} frames arrived{unmatched}, {sent} were sent")?;
    if *too_short > 0 {
        writeln!(out, "{too_short} shorter than an Ethernet header were left out")?;
    }
    if *too_long > 0 {
        writeln!(
            out,
            "{too_long} longer than the NIC takes were left out: captured without offloads (ethtool -K IF gro off lro off tso off) there are none"
        )?;
    }
    Ok(())
}

/// Prints the output of `list`.
pub fn contexts(out: &mut impl Write, contexts: &[ContextInfo], form: Option<JsonForm>) -> io::Result<()> {
    match form {
        Some(JsonForm::Objects) => return as_json(out, &json::contexts(contexts)?),
        Some(JsonForm::Pairs) => return as_json(out, &contexts),
        None => {}
    }
    writeln!(out, "{:>4}  {:<16} {:>6}  {:<9} RULES", "ID", "NAME", "UID", "HANDLERS")?;
    for context in contexts {
        let ContextInfo { context: id, uid, .. } = context;
        if context.hidden {
            writeln!(out, "{id:>4}  {HIDDEN:<16} {uid:>6}  {HIDDEN:<9} {HIDDEN}")?;
            writeln!(out, "{:46}weight: {}", "", context.run.weight)?;
            continue;
        }
        let (handlers, rules) = (handlers(context.handlers), context.rules.join(" or "));
        writeln!(out, "{id:>4}  {:<16} {uid:>6}  {handlers:<9} {rules}", context.name)?;
        let header = context.header.as_ref().map(|(rule, early)| format!("header: {rule}, early packets: {early}; "));
        let header = header.unwrap_or_default();
        writeln!(out, "{:46}{header}end of message: {}; key: {}", "", context.eom, context.key)?;
        let (how, units) = (how(&context.run), units(context.units));
        writeln!(out, "{:46}{how}; {units}; lifetime: {}", "", context.lifetime)?;
        if let Some(why) = &context.interpreted {
            writeln!(out, "{:46}interpreted: {why}", "")?;
        }
        if let Some(tier) = &context.tier {
            writeln!(out, "{:46}tier: {}", "", shown_tier(tier))?;
        }
    }
    Ok(())
}

/// Prints the output of `list --users`.
pub fn users(out: &mut impl Write, users: &Users, json: bool) -> io::Result<()> {
    if json {
        return as_json(out, &users);
    }
    let columns = ["HOST MEMORY", "CONTEXTS", "IMAGES", "MACHINE CODE", "REQUESTS", "SUM", "LIMIT"];
    write!(out, "{:>10}", "UID")?;
    columns.iter().try_for_each(|column| write!(out, "  {column:>12}"))?;
    writeln!(out)?;
    for UserInfo { uid, bill, limit } in &users.users {
        let Bill { host_memory, context_memory, images, translations, requests } = *bill;
        write!(out, "{uid:>10}")?;
        let bytes = [host_memory, context_memory, images, translations, requests, bill.total()];
        bytes.iter().try_for_each(|bytes| write!(out, "  {bytes:>12}"))?;
        writeln!(out, "  {:>12}", limit_text(*limit))?;
    }
    let sum: u64 = users.users.iter().map(|user| user.bill.total()).sum();
    writeln!(
        out,
        "these users: {sum} bytes; all users: at most {}; spind itself: {}",
        limit_text(users.limit),
        users.own
    )
}

fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())
}

/// Prints the output of `stats`.
pub fn stats(out: &mut impl Write, stats: &Stats, explain: bool) -> io::Result<()> {
    writeln!(out, "nic: {}", stats.nic)?;
    counters(out, &stats.nic_counters, |name| nic_meaning(name).filter(|_| explain))?;
    writeln!(out, "engine:")?;
    let meaning = |name: &str| {
        let known = Counter::ALL.iter().find(|counter| explain && counter.name() == name);
        known.map(|counter| counter.meaning())
    };
    counters(out, &stats.engine, meaning)?;
    latencies(out, "", &stats.latencies)?;
    threads(out, &stats.threads)?;
    for context in &stats.contexts {
        if context.hidden {
            writeln!(out, "context {} ({HIDDEN}) of user {}: {HIDDEN}", context.context, context.uid)?;
            writeln!(out, "  weight: {}", context.run.weight)?;
        } else {
            writeln!(out, "context {} ({}): {}", context.context, context.name, context.rules.join(" or "))?;
            writeln!(out, "  {}; {}", how(&context.run), units(context.units))?;
        }
        counters(out, &context.counters, meaning)?;
        latencies(out, "  ", &context.latencies)?;
        for entry in &context.faults {
            writeln!(out, "  fault in {entry}")?;
        }
    }
    Ok(())
}

/// Prints what each thread received and ran, if there are several.
fn threads(out: &mut impl Write, threads: &[ThreadInfo]) -> io::Result<()> {
    if threads.len() < 2 {
        return Ok(());
    }
    let columns = [Counter::RxPackets, Counter::HandedOver, Counter::PayloadRuns];
    write!(out, "threads:  unit  clusters  core  node")?;
    columns.iter().try_for_each(|counter| write!(out, "  {:>16}", counter.name()))?;
    writeln!(out)?;
    for ThreadInfo { unit, clusters: (first, last), core, node, counters } in threads {
        let core = core.map_or_else(|| "any".to_owned(), |core| core.to_string());
        write!(out, "          {unit:>4}  {:>8}  {core:>4}  {node:>4}", format!("{first}-{last}"))?;
        columns.iter().try_for_each(|&counter| write!(out, "  {:>16}", counters.get(counter)))?;
        writeln!(out)?;
    }
    Ok(())
}

/// The units that run a context.
fn units((first, last): (u32, u32)) -> String {
    if first == last { format!("unit: {first}") } else { format!("units: {first}-{last}") }
}

/// Prints a value as JSON.
pub fn as_json(out: &mut impl Write, all: &impl Serialize) -> io::Result<()> {
    writeln!(out, "{}", serde_json::to_string_pretty(all)?)
}

/// Prints the output of `capabilities`.
pub fn capabilities(out: &mut impl Write, all: &Capabilities, json: bool) -> io::Result<()> {
    if json {
        return as_json(out, all);
    }
    let (machine, limits) = (&all.machine, &all.limits);
    let (clusters, hpus) = (machine.clusters, machine.hpus_per_cluster);
    let units = if all.units > 1 { format!("{} units x ", all.units) } else { String::new() };
    let hpus = format!("{units}{clusters} clusters x {hpus} HPUs, on {} thread(s)", all.threads);
    let l1 = format!("{} per cluster, up to {} of it scratchpad", bytes(machine.l1), bytes(machine.scratchpad));
    let instructions = limits.instruction_limit.map(|limit| format!(", {limit} instructions")).unwrap_or_default();
    let rows = [
        ("spind", format!("{}, control protocol {}", all.version, all.protocol)),
        ("nic", all.nic.clone()),
        ("machine", hpus),
        ("L1", l1),
        ("L2 data", bytes(machine.l2_data)),
        ("handler memory", bytes(machine.handler_mem)),
        ("L2 packet buffer", bytes(machine.l2_packet)),
        ("program memory", bytes(machine.program)),
        ("stack", format!("{} per task", bytes(machine.stack))),
        ("longest frame", format!("{} B, {} B behind the Ethernet header", all.max_frame, all.max_payload)),
        ("contexts", format!("at most {}", limits.contexts)),
        ("message queues", format!("{}, {} packets waiting", limits.queues, limits.hers)),
        ("host memory", format!("at most {} per context", bytes(limits.host_mem))),
        ("handler's time", format!("at most {} us{instructions}", limits.watchdog_us)),
        ("image file", format!("at most {}", bytes(limits.image))),
        ("connections", format!("at most {} per user", limits.connections)),
        ("engine", all.engine.clone()),
        ("checks", all.checks.join(", ")),
        ("isolation", all.isolation.join(", ")),
        ("placement", all.placement.join(", ")),
        ("messages as of", all.compat.to_string()),
    ];
    rows.iter().try_for_each(|(name, value)| writeln!(out, "{name:<22} {value}"))?;
    guarantees(out, &all.guarantees)
}

fn guarantees(out: &mut impl Write, all: &Guarantees) -> io::Result<()> {
    let rows = [
        ("header first", all.header_first),
        ("delivered in order", all.in_order_delivery),
        ("in order", all.in_order),
        ("reliable", all.reliable),
        ("unmatched to kernel", all.unmatched_to_kernel),
        ("matched to kernel", all.matched_to_kernel),
    ];
    for (name, holds) in rows {
        writeln!(out, "{name:<22} {}", if holds { "yes" } else { "no" })?;
    }
    let clock = all.clock_hz.map_or("counts instructions".to_owned(), |hz| format!("{hz} Hz"));
    writeln!(out, "{:<22} {clock}", "cycle counter")
}

/// Formats a size in the largest unit of which it is a whole number.
fn bytes(size: impl Into<u64>) -> String {
    let size = size.into();
    let whole =
        [("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, shift)| size != 0 && size % (1 << shift) == 0);
    whole.map_or_else(|| format!("{size} B"), |(unit, shift)| format!("{} {unit}", size >> shift))
}

/// Describes how a context's handlers are run.
fn how(run: &RunInfo) -> String {
    let RunInfo { engine, abi, checks, isolation, placement, watchdog_us, weight, full, hpus, verdicts, .. } = run;
    let RunInfo { instruction_limit, message_timeout_us, doorbell_us, .. } = run;
    let instructions = instruction_limit.map(|limit| format!(", {limit} instructions")).unwrap_or_default();
    let timeout = message_timeout_us.map(|limit| format!("; message timeout: {limit} us")).unwrap_or_default();
    let doorbell = doorbell_us.map(|wait| format!("; doorbell: {wait} us")).unwrap_or_default();
    let kept = format!("checks: {checks}; isolation: {isolation}; placement: {placement}");
    let shares = format!("weight: {weight}; full: {full}; HPUs: {hpus}");
    let verdicts = if *verdicts { "; verdicts" } else { "" };
    let abi = if *abi == Abi::Wire { String::new() } else { format!("; abi {abi}") };
    format!(
        "engine: {engine}{abi}; {kept}; limit: {watchdog_us} us{instructions}{timeout}{doorbell}; {shares}{verdicts}"
    )
}

fn shown_tier(TierInfo { kernel, reason }: &TierInfo) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!("; {reason}") };
    format!("{}{reason}", if *kernel { Tier::Kernel } else { Tier::User })
}

/// Formats the handlers of an image as `h`, `p`, `c`.
fn handlers(present: [bool; 3]) -> String {
    ["h", "p", "c"].iter().zip(present).map(|(letter, has)| if has { *letter } else { "-" }).collect()
}

fn counters(
    out: &mut impl Write,
    counters: &Counters,
    meaning: impl Fn(&str) -> Option<&'static str>,
) -> io::Result<()> {
    // An idle daemon shows what it counts.
    let idle = counters.iter().all(|(_, value)| value == 0);
    for (name, value) in counters.iter().filter(|(_, value)| idle || *value > 0) {
        match meaning(name) {
            Some(meaning) => writeln!(out, "  {name:<24} {value:>16}  {meaning}")?,
            None => writeln!(out, "  {name:<24} {value:>16}")?,
        }
    }
    Ok(())
}

/// Prints a table of latencies, indented.
fn latencies(out: &mut impl Write, indent: &str, latencies: &[LatencyInfo]) -> io::Result<()> {
    let mut measured = latencies.iter().filter(|latency| latency.count > 0).peekable();
    if measured.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "{indent}latency in ns:  {:>12} {:>12} {:>12} {:>12} {:>12}", "count", "p50", "p99", "p99.9", "max")?;
    for LatencyInfo { name, count, p50_ns, p99_ns, p999_ns, max_ns, .. } in measured {
        writeln!(out, "{indent}  {name:<13} {count:>12} {p50_ns:>12} {p99_ns:>12} {p999_ns:>12} {max_ns:>12}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{bytes, capabilities, contexts, stats};
    use libspin::{ContextInfo, Counters, FaultInfo, LatencyInfo, RunInfo, SourceLine, Stats, TierInfo};

    #[test]
    fn sizes_are_shown_in_whole_units() {
        let shown = [0, 1000, 1 << 10, 960 << 10, 3 << 20, 1 << 30].map(|size: u64| bytes(size));
        assert_eq!(shown, ["0 B", "1000 B", "1 KiB", "960 KiB", "3 MiB", "1 GiB"]);
    }

    #[test]
    fn capabilities_of_another_version_are_shown_as_far_as_they_are_known() {
        let text = r#"{"nic": "veth1", "max_frame": 1514, "shiny": [1], "engine": "steam", "checks": ["page", "bit"]}"#;
        let known = serde_json::from_str(text).unwrap();
        let mut out = Vec::new();
        capabilities(&mut out, &known, false).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.contains("longest frame          1514 B") && shown.contains("page, bit"), "{shown}");
    }

    /// A fault as reported by a spind that does not know source lines.
    const FAULT: &str = r#"{"handler": "payload", "symbol": "dig+0x4",
        "fault": {"cause": "load-access", "pc": 4096, "address": 0}}"#;

    fn context(counters: Counters, faults: Vec<FaultInfo>) -> ContextInfo {
        ContextInfo { context: 1, handlers: [true; 3], counters, faults, ..ContextInfo::default() }
    }

    fn stats_of(context: ContextInfo, explain: bool) -> String {
        let mut out = Vec::new();
        stats(&mut out, &Stats { contexts: vec![context], ..Stats::default() }, explain).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn shown(fault: FaultInfo) -> String {
        stats_of(context(Counters::default(), vec![fault]), false)
    }

    #[test]
    fn counters_are_explained_when_asked_for() {
        // Includes a counter that this spinctl does not know.
        let counters = Counters::from_iter([("faults", 3), ("faulty", 4), ("messages", 0)]);
        let told = |explain| stats_of(context(counters.clone(), Vec::new()), explain);
        let lines: Vec<_> = told(true).lines().map(|line| line.trim().to_owned()).collect();
        assert!(lines.iter().any(|line| line.starts_with("faults") && line.ends_with("3  handlers ended by a fault")));
        assert!(lines.iter().any(|line| line.starts_with("faulty") && line.ends_with(" 4")));
        assert!(!told(true).contains("messages") && !told(false).contains("ended by"));
    }

    #[test]
    fn contexts_of_others_are_shown_without_texts() {
        let counters = Counters::from_iter([("drop_share", 4)]);
        let run = RunInfo { weight: 3, ..RunInfo::default() };
        let hidden = ContextInfo { context: 7, uid: 1000, hidden: true, run, counters, ..ContextInfo::default() };
        let mut out = Vec::new();
        contexts(&mut out, std::slice::from_ref(&hidden), None).unwrap();
        let list = String::from_utf8(out).unwrap();
        let lines: Vec<Vec<_>> = list.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [vec!["7", "-", "1000", "-", "-"], vec!["weight:", "3"]]);
        let told = stats_of(hidden, false);
        assert!(told.contains("context 7 (-) of user 1000: -\n  weight: 3\n  drop_share "), "{told}");
    }

    #[test]
    fn the_tier_is_shown_with_the_reason() {
        let list = |tier| {
            let mut out = Vec::new();
            contexts(&mut out, &[ContextInfo { tier, ..context(Counters::default(), vec![]) }], None).unwrap();
            String::from_utf8(out).unwrap()
        };
        let tier = |kernel, reason: &str| Some(TierInfo { kernel, reason: reason.to_owned() });
        assert!(!list(None).contains("tier"));
        assert!(list(tier(true, "")).ends_with(" tier: kernel\n"));
        assert!(list(tier(false, "it is off")).ends_with(" tier: user; it is off\n"));
    }

    #[test]
    fn latencies_of_a_context_are_below_its_counters() {
        let total = LatencyInfo { name: "total".into(), count: 3, p99_ns: 70, ..LatencyInfo::default() };
        let told = stats_of(ContextInfo { latencies: vec![total], ..context(Counters::default(), vec![]) }, false);
        let lines: Vec<_> = told.lines().rev().take(2).collect();
        assert!(lines[1].starts_with("  latency in ns: "), "{told}");
        let cells: Vec<_> = lines[0].split_whitespace().collect();
        assert_eq!(cells, ["total", "3", "0", "70", "0", "0"]);
    }

    #[test]
    fn an_idle_daemon_lists_its_counters() {
        let idle = Counters::from_iter([("rx_packets", 0), ("matched", 0)]);
        let told = stats_of(context(idle, Vec::new()), false);
        assert!(told.contains("rx_packets") && told.contains("matched"), "{told}");
    }

    #[test]
    fn a_fault_shows_its_source_line_if_it_has_one() {
        let mut fault: FaultInfo = serde_json::from_str(FAULT).unwrap();
        assert!(shown(fault.clone()).ends_with(" in dig+0x4\n"));
        assert_eq!(serde_json::to_value(&fault).unwrap().get("line"), None, "as older peers expect it");
        fault.line = Some(SourceLine { file: "dig.c".into(), line: 34 });
        fault.note = Some("remote L1".into());
        assert!(shown(fault.clone()).ends_with(" in dig+0x4 (dig.c:34): remote L1\n"));
        fault.inlined_at = Some(SourceLine { file: "own.c".into(), line: 5 });
        assert!(shown(fault).ends_with(" in dig+0x4 (dig.c:34, inlined at own.c:5): remote L1\n"));
    }
}
