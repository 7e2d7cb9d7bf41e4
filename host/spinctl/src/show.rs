//! Printing for people, and as JSON for programs.

use std::io::{self, Write};

use libspin::{ContextInfo, RunInfo, Stats};

/// Prints `list`.
pub fn contexts(out: &mut impl Write, contexts: &[ContextInfo], json: bool) -> io::Result<()> {
    if json {
        return writeln!(out, "{}", serde_json::to_string_pretty(contexts)?);
    }
    writeln!(out, "{:>4}  {:<16} {:>6}  {:<9} RULES", "ID", "NAME", "UID", "HANDLERS")?;
    for context in contexts {
        writeln!(
            out,
            "{:>4}  {:<16} {:>6}  {:<9} {}",
            context.context,
            context.name,
            context.uid,
            handlers(context.handlers),
            context.rules.join(" or ")
        )?;
        writeln!(out, "{:46}end of message: {}; key: {}", "", context.eom, context.key)?;
        writeln!(out, "{:46}{}", "", how(&context.run))?;
    }
    Ok(())
}

/// Prints `stats`.
pub fn stats(out: &mut impl Write, stats: &Stats, json: bool) -> io::Result<()> {
    if json {
        return writeln!(out, "{}", serde_json::to_string_pretty(stats)?);
    }
    writeln!(out, "nic: {}", stats.nic)?;
    counters(out, &stats.nic_counters)?;
    writeln!(out, "engine:")?;
    counters(out, &stats.engine)?;
    for context in &stats.contexts {
        writeln!(out, "context {} ({}): {}", context.context, context.name, context.rules.join(" or "))?;
        writeln!(out, "  {}", how(&context.run))?;
        counters(out, &context.counters)?;
        for entry in &context.faults {
            let line = entry.line.as_ref().map(|line| format!(" ({line})")).unwrap_or_default();
            let note = entry.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            writeln!(out, "  fault in {} handler: {} in {}{line}{note}", entry.handler, entry.fault, entry.symbol)?;
        }
    }
    Ok(())
}

/// How a context's handlers are run, in words.
fn how(run: &RunInfo) -> String {
    let RunInfo { engine, checks, isolation, placement, watchdog_us, weight, full, hpus, .. } = run;
    let RunInfo { instruction_limit, message_timeout_us, .. } = run;
    let instructions = instruction_limit.map(|limit| format!(", {limit} instructions")).unwrap_or_default();
    let timeout = message_timeout_us.map(|limit| format!("; message timeout: {limit} us")).unwrap_or_default();
    let kept = format!("checks: {checks}; isolation: {isolation}; placement: {placement}");
    format!(
        "engine: {engine}; {kept}; limit: {watchdog_us} us{instructions}{timeout}; weight: {weight}; full: {full}; HPUs: {hpus}"
    )
}

/// `h`, `p`, `c` for the handlers an image has.
fn handlers(present: [bool; 3]) -> String {
    ["h", "p", "c"].iter().zip(present).map(|(letter, has)| if has { *letter } else { "-" }).collect()
}

fn counters(out: &mut impl Write, counters: &[(String, u64)]) -> io::Result<()> {
    for (name, value) in counters.iter().filter(|(_, value)| *value > 0) {
        writeln!(out, "  {name:<24} {value:>16}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::stats;
    use libspin::{ContextInfo, FaultInfo, RunInfo, SourceLine, Stats};

    /// A fault as a spind says it that knows nothing of source lines.
    const FAULT: &str = r#"{"handler": "payload", "symbol": "dig+0x4",
        "fault": {"cause": "load-access", "pc": 4096, "address": 0}}"#;

    fn shown(fault: FaultInfo) -> String {
        let (name, eom, key) = Default::default();
        let (rules, counters, faults) = (Vec::new(), Vec::new(), vec![fault]);
        let context = ContextInfo {
            context: 1,
            name,
            uid: 0,
            rules,
            eom,
            key,
            handlers: [true; 3],
            host_mem: 0,
            run: RunInfo::default(),
            counters,
            faults,
        };
        let mut out = Vec::new();
        stats(&mut out, &Stats { contexts: vec![context], ..Stats::default() }, false).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_fault_shows_its_source_line_if_it_has_one() {
        let mut fault: FaultInfo = serde_json::from_str(FAULT).unwrap();
        assert!(shown(fault.clone()).ends_with(" in dig+0x4\n"));
        assert_eq!(serde_json::to_value(&fault).unwrap().get("line"), None, "as older peers expect it");
        fault.line = Some(SourceLine { file: "dig.c".into(), line: 34 });
        fault.note = Some("remote L1".into());
        assert!(shown(fault).ends_with(" in dig+0x4 (dig.c:34): remote L1\n"));
    }
}
