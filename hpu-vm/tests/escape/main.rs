//! Handlers that try to leave their memory, run by the interpreter and by every kind of translation: each attempt ends as
//! a named fault, the same for all of them, or does what the interpreter does; nobody else's byte changes.
//!
//! `--nocapture` prints the table.

#[path = "../support/assembly.rs"]
mod assembly;
#[path = "../differential/device.rs"]
mod device;
#[path = "../support/guest.rs"]
mod guest;

mod attack;
mod canary;
mod commands;
mod control;
mod devices;
mod inherited;
mod packets;
mod signals;
mod sweep;
mod views;

use attack::Tried;

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
    report("control", &attack::all(&attacks));
}

#[test]
fn no_access_reaches_memory_of_others() {
    let tried = attack::all(&sweep::foreign());
    // One row for each target: there are too many.
    println!("memory: {} attempts at {} addresses", tried.len(), sweep::TARGETS.len());
    let failed: Vec<Tried> = tried.into_iter().filter(|row| row.complaint.is_some()).collect();
    report("memory that went wrong", &failed);
}

#[test]
fn accesses_at_the_ends_of_memory_and_of_ranges() {
    report("edges", &attack::all(&sweep::edges()));
}
