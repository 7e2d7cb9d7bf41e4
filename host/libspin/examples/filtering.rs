//! Host program of `handlers/filtering`: datagrams from 10.0.0.1 and 10.0.0.3 get ports 7001 and 7003. Prints source
//! and destination port of the headers that arrive in host memory.

mod common;

use std::net::Ipv4Addr;

use common::{Outcome, Program, RULE};
use libspin::{Install, Region};

const ENTRIES: u64 = 65_536;
const ENTRY: u64 = 8;
const RECORD: u64 = 64;
/// Number of table entries where a source may be stored.
const PROBES: u64 = 8;
/// Offset of the table. The records precede it, and the word that marks it complete follows it.
const TABLE: u64 = ENTRIES * RECORD;
const READY: u64 = TABLE + ENTRIES * ENTRY;

/// Returns the entry where the search for a source begins.
fn home(source: Ipv4Addr) -> u64 {
    u64::from(u32::from_le_bytes(source.octets()).wrapping_mul(0x9e37_79b1) >> 16)
}

/// Inserts a source into the table.
fn enter(host: &Region, source: Ipv4Addr, port: u16) -> Outcome {
    for probe in 0..PROBES {
        let at = TABLE + (home(source) + probe) % ENTRIES * ENTRY;
        let mut key = [0; 4];
        host.read(at, &mut key)?;
        if key == [0; 4] || key == source.octets() {
            host.write(at + 4, &port.to_be_bytes())?;
            host.write(at, &source.octets())?;
            return Ok(());
        }
    }
    Err("no room for this source: the table is too full".into())
}

fn main() -> Outcome {
    let install = Install {
        rules: vec![RULE.into()],
        handler_mem: 516 << 10,
        host_mem: (READY + 4).next_multiple_of(4096),
        ..Install::default()
    };
    let mut program = Program::install(&install)?;
    let host = program.host()?;
    enter(host, [10, 0, 0, 1].into(), 7001)?;
    enter(host, [10, 0, 0, 3].into(), 7003)?;
    host.write(READY, &1u32.to_le_bytes())?;
    program.wait()?;
    for entry in 0..ENTRIES {
        let mut headers = [0; 42];
        program.host()?.read(entry * RECORD, &mut headers)?;
        if headers != [0; 42] {
            let source = Ipv4Addr::new(headers[26], headers[27], headers[28], headers[29]);
            println!("{source} to port {}", u16::from_be_bytes([headers[36], headers[37]]));
        }
    }
    Ok(())
}
