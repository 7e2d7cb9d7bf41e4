//! Host program of `handlers/kvstore`: provides the cache's memory and prints the number of answered requests. The
//! cache is lost when the program exits.

mod common;

use common::{Outcome, Program, RULE};
use libspin::Install;

fn main() -> Outcome {
    let install = Install { rules: vec![RULE.into()], handler_mem: 8 << 10, ..Install::default() };
    let mut program = Program::install(&install)?;
    program.wait()?;
    println!("{} requests answered", program.counter("tx_packets")?);
    Ok(())
}
