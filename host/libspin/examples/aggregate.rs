//! Host program of `handlers/aggregate`: prints the sum of the last completed message.

mod common;

use common::{Outcome, Program, RULE};
use libspin::Install;

fn main() -> Outcome {
    let install = Install { rules: vec![RULE.into()], scratchpad: 4 << 10, host_mem: 4 << 10, ..Install::default() };
    let mut program = Program::install(&install)?;
    program.wait()?;
    println!("sum {}", program.words(0, 1)?[0]);
    Ok(())
}
