//! Printing for people, and as JSON for programs.

use libspin::{ContextInfo, Stats};

/// Prints `list`.
pub fn contexts(contexts: &[ContextInfo], json: bool) -> serde_json::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(contexts)?);
        return Ok(());
    }
    println!("{:>4}  {:<16} {:>6}  {:<9} RULES", "ID", "NAME", "UID", "HANDLERS");
    for context in contexts {
        println!(
            "{:>4}  {:<16} {:>6}  {:<9} {}",
            context.context,
            context.name,
            context.uid,
            handlers(context.handlers),
            context.rules.join(" or ")
        );
        println!("{:46}end of message: {}; key: {}", "", context.eom, context.key);
    }
    Ok(())
}

/// Prints `stats`.
pub fn stats(stats: &Stats, json: bool) -> serde_json::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(stats)?);
        return Ok(());
    }
    println!("nic: {}", stats.nic);
    counters(&stats.nic_counters);
    println!("engine:");
    counters(&stats.engine);
    for context in &stats.contexts {
        println!("context {} ({}): {}", context.context, context.name, context.rules.join(" or "));
        counters(&context.counters);
        for entry in &context.faults {
            println!("  fault in {} handler: {} in {}", entry.handler, entry.fault, entry.symbol);
        }
    }
    Ok(())
}

/// `h`, `p`, `c` for the handlers an image has.
fn handlers(present: [bool; 3]) -> String {
    ["h", "p", "c"].iter().zip(present).map(|(letter, has)| if has { *letter } else { "-" }).collect()
}

fn counters(counters: &[(String, u64)]) {
    for (name, value) in counters.iter().filter(|(_, value)| *value > 0) {
        println!("  {name:<24} {value:>16}");
    }
}
