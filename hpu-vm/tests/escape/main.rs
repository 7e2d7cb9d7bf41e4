//! Handlers that try to leave their memory, run by the interpreter and by every kind of translation: each attempt ends as
//! a named fault, the same for all of them, or does what the interpreter does; nobody else's byte changes. Programs of the
//! XDP hook may leave an attempt to user space instead, or are refused with a reason.
//!
//! `--nocapture` prints the table.

#[path = "../support/assembly.rs"]
mod assembly;
#[path = "../differential/device.rs"]
mod device;
#[path = "../support/guest.rs"]
mod guest;

mod attack;
mod attempts;
mod canary;
mod commands;
mod control;
mod devices;
mod hook;
mod inherited;
mod packets;
mod signals;
mod sweep;
mod views;

use attempts::Tried;
use hook::expected::Rules;
use hook::{InMachine, Row};

/// Prints a table's rows, and fails if there are complaints.
fn report(title: &str, tried: &[Tried]) {
    println!("{title}: {} attempts", tried.len());
    tried.iter().for_each(|row| println!("  {row}"));
    let complaints: Vec<&str> = tried.iter().filter_map(|row| row.complaint.as_deref()).collect();
    assert!(complaints.is_empty(), "{} of {}:\n{}", complaints.len(), tried.len(), complaints.join("\n"));
}

#[test]
fn jumps_lead_nowhere_but_into_code() {
    let attacks = control::attacks();
    report("control", &attempts::all(&attacks));
}

#[test]
fn no_access_reaches_memory_of_others() {
    let tried = attempts::all(&sweep::foreign());
    // One row for each target: there are too many.
    println!("memory: {} attempts at {} addresses", tried.len(), sweep::TARGETS.len());
    let failed: Vec<Tried> = tried.into_iter().filter(|row| row.complaint.is_some()).collect();
    report("memory that went wrong", &failed);
}

#[test]
fn accesses_at_the_ends_of_memory_and_of_ranges() {
    report("edges", &attempts::all(&sweep::edges()));
}

#[test]
fn programs_of_the_hook_reach_nothing_of_others() {
    let attacks = [control::attacks(), sweep::foreign(), sweep::edges()].concat();
    let mut rules = Rules::default();
    let rows: Vec<Row> = attacks
        .iter()
        .flat_map(|attack| hook::FORMS.map(|form| hook::attempt(&mut InMachine, &mut rules, attack, form)))
        .collect();
    hook::report("the hook", &rows);
    assert_eq!(rules.unused(), [""; 0], "rules without an attack");
}

#[test]
fn commands_of_the_hook_are_made_as_described_or_left() {
    let commands = hook::commands::all();
    let forms =
        |commands| hook::commands::forms().map(move |form| hook::commands::attempt(&mut InMachine, commands, form));
    let rows: Vec<Row> = commands.iter().flat_map(forms).collect();
    hook::report("commands", &rows);
}
