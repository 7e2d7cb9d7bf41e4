//! Host program of `handlers/strided_ddt`: requests blocks of 256 bytes with a stride of 512 and prints the beginning
//! of each received block.

mod common;

use common::{Outcome, Program, RULE};
use libspin::Install;

const BLOCK: u32 = 256;
const STRIDE: u32 = 512;
const HOST_MEM: u64 = 2 << 20;

fn main() -> Outcome {
    let install = Install { rules: vec![RULE.into()], handler_mem: 4 << 10, host_mem: HOST_MEM, ..Install::default() };
    let mut program = Program::install(&install)?;
    // Written in one piece, since handlers may read it at any time.
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
