//! Printing for people, and as JSON for programs.

use std::io::{self, Write};

use libspin::{ContextInfo, Stats};

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
        counters(out, &context.counters)?;
        for entry in &context.faults {
            writeln!(out, "  fault in {} handler: {} in {}", entry.handler, entry.fault, entry.symbol)?;
        }
    }
    Ok(())
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
