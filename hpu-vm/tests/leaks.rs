//! What translations and slots leave behind: nothing.

#[path = "support/assembly.rs"]
mod assembly;
#[path = "support/guest.rs"]
mod guest;

use assembly::{A2, Assembly};
use guest::{CODE, Guest, OWN, task};
use hpu_vm::jit::{CodeMemoryError, Executor, Options, Source, TranslateError, Translation};
use hpu_vm::{Code, Exit, NoDevice, Op, Reg};
use std::collections::BTreeSet;

/// Rounds of the test.
const ROUNDS: u32 = if cfg!(debug_assertions) { 1000 } else { 10_000 };
/// Rounds before the first count: libraries keep some memory for later.
const BEFORE: u32 = 50;
/// Mappings the allocator may have added for its own sake.
const SLACK: usize = 8;
/// Translations that certainly fill the memory for code; the smallest take 16 KiB.
const FULL: usize = 1 << 20;

/// Mappings, open files and threads' share of the system.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's mappings");
    let files = std::fs::read_dir("/proc/self/fd").expect("this process's files");
    (maps.lines().count(), files.count())
}

fn program() -> Code {
    let program = Assembly::new().li(A2, OWN.data).imm(Op::Lw, Reg::A1, A2, 0).imm(Op::Addi, Reg::A1, Reg::A1, 1);
    program.store(Op::Sw, Reg::A1, A2, 0).ret().code()
}

fn translation(code: &Code) -> Result<Translation, TranslateError> {
    Translation::new(Source { code, entries: &[CODE], taken: &BTreeSet::new() }, Options::default())
}

fn round(executor: &Executor, code: &Code) {
    let translation = translation(code).expect("room for code: earlier code was given back");
    let mut guest = Guest::new(OWN, code, 0);
    let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, code, Some(&translation)), &mut NoDevice);
    assert_eq!((exit, guest.word(OWN.data)), (Exit::Returned, 1));
}

/// One test, since the second part takes all the memory for code that the process has.
#[test]
fn nothing_is_left_of_what_was_dropped_and_code_memory_is_bounded() {
    let (executor, code) = (Executor::new().expect("a timer"), program());
    (0..BEFORE).for_each(|_| round(&executor, &code));
    let (maps, files) = held();
    (0..ROUNDS).for_each(|_| round(&executor, &code));
    let (maps_now, files_now) = held();
    println!("{ROUNDS} rounds: {maps} then {maps_now} mappings, {files} then {files_now} files");
    assert_eq!(files_now, files);
    assert!(maps_now <= maps + SLACK, "{maps} mappings, then {maps_now}");

    let mut kept = Vec::new();
    let refused = (0..FULL).find_map(|_| match translation(&code) {
        Ok(translation) => {
            kept.push(translation);
            None
        }
        Err(error) => Some(error),
    });
    println!("{} translations fill the memory for code; then: {refused:?}", kept.len());
    assert!(matches!(refused, Some(TranslateError::Memory(CodeMemoryError::Full { asked: 1.. }))), "{refused:?}");
    // Those there still run, and one that goes makes room for one.
    let mut guest = Guest::new(OWN, &code, 0);
    for translation in kept.iter().take(3) {
        let exit = executor.run(&mut guest.slot, &mut [], &task(OWN, &code, Some(translation)), &mut NoDevice);
        assert_eq!(exit, Exit::Returned);
    }
    kept.pop();
    let again = translation(&code).expect("room for one more");
    assert!(translation(&code).is_err());
    drop((kept, again, guest));
    round(&executor, &code);
    let (maps_now, files_now) = held();
    assert_eq!(files_now, files);
    assert!(maps_now <= maps + SLACK, "{maps} mappings, then {maps_now}");
}
