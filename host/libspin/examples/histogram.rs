//! Host program of `handlers/histogram`: prints the received values and their counts.

mod common;

use common::{Outcome, Program, RULE, print_nonzero};
use libspin::Install;

/// Number of counted values.
const BINS: usize = 1025;

fn main() -> Outcome {
    let install = Install { rules: vec![RULE.into()], scratchpad: 8 << 10, host_mem: 20 << 10, ..Install::default() };
    let mut program = Program::install(&install)?;
    program.wait()?;
    print_nonzero(&program.sum_of_clusters(BINS)?);
    Ok(())
}
