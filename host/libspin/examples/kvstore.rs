//! Host program of `handlers/kvstore`: lends the cache its memory, and prints how many requests it answered. The cache is gone
//! when this ends.

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
