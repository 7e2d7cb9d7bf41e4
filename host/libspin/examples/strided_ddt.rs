//! Host program of `handlers/strided_ddt`: asks for blocks of 256 bytes that lie 512 apart, and prints how each block begins
//! that has come.

mod common;

use common::{Outcome, Program, RULE};
use libspin::Install;

const BLOCK: u32 = 256;
const STRIDE: u32 = 512;
const HOST_MEM: u64 = 2 << 20;

fn main() -> Outcome {
    let install = Install { rules: vec![RULE.into()], handler_mem: 4 << 10, host_mem: HOST_MEM, ..Install::default() };
    let mut program = Program::install(&install)?;
    // In one piece, for handlers may look at any time.
    let layout = u64::from(STRIDE) << 32 | u64::from(BLOCK);
    program.host()?.write(HOST_MEM - 8, &layout.to_le_bytes())?;
    program.wait()?;
    for block in 0..HOST_MEM / u64::from(STRIDE) - 1 {
        let mut first = [0; 8];
        program.host()?.read(block * u64::from(STRIDE), &mut first)?;
        if first != [0; 8] {
            println!("block {block}: {first:02x?}");
        }
    }
    Ok(())
}
