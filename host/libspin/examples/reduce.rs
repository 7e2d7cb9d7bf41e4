//! Host program of `handlers/reduce`: prints the non-zero elements of the sum.

mod common;

use common::{Outcome, Program, RULE, print_nonzero};
use libspin::Install;

/// Number of elements of the vector.
const ELEMENTS: usize = 512;

fn main() -> Outcome {
    let install = Install { rules: vec![RULE.into()], scratchpad: 4 << 10, host_mem: 8 << 10, ..Install::default() };
    let mut program = Program::install(&install)?;
    program.wait()?;
    print_nonzero(&program.sum_of_clusters(ELEMENTS)?);
    Ok(())
}
