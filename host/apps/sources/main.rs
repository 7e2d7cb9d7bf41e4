//! Prints packets and bytes by IPv4 source address of UDP port 7001, most packets first: while packets arrive, and when
//! PACKETS have. Usage: `sources HANDLERS.elf PACKETS [SOCKET]`
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::error::Error;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

use libspin::{Client, DEFAULT_SOCKET, Install, OutOfBounds, Region};

const RULE: &str = "udp dport 7001";
/// Rows of the table. The last one is for sources for which it has no room.
const ROWS: u64 = 1025;
/// Bytes of a row in host memory: address, packets, bytes.
const ROW: u64 = 24;
const HANDLER_MEMORY: u32 = 1025 * 32;

struct Row {
    address: Ipv4Addr,
    packets: u64,
    bytes: u64,
}

/// Reads the rows in use, sorted. Handlers write at any time, but each word as a whole.
fn read_table(host: &Region) -> Result<Vec<Row>, OutOfBounds> {
    let row = |at| {
        let address = Ipv4Addr::from(host.load_u32(at)?.to_le_bytes());
        Ok(Row { address, packets: host.load_u64(at + 8)?, bytes: host.load_u64(at + 16)? })
    };
    let mut rows = (0..ROWS).map(|number| row(number * ROW)).collect::<Result<Vec<_>, _>>()?;
    rows.retain(|row| row.packets > 0);
    rows.sort_by_key(|row| Reverse(row.packets));
    Ok(rows)
}

fn count(rows: &[Row]) -> u64 {
    rows.iter().map(|row| row.packets).sum()
}

fn print_table(rows: &[Row]) {
    println!("{} packets, {} sources", count(rows), rows.len());
    for Row { address, packets, bytes } in rows {
        println!("{:<15} {packets:>9} packets {bytes:>12} bytes", address.to_string());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, packets, socket @ ..] = &arguments[..] else {
        return Err("usage: sources HANDLERS.elf PACKETS [SOCKET]".into());
    };
    let expected: u64 = packets.parse()?;
    let mut spind = Client::connect(socket.first().map_or(DEFAULT_SOCKET, String::as_str))?;
    let install = Install {
        name: "sources".into(),
        rules: vec![RULE.into()],
        host_mem: ROWS * ROW,
        handler_mem: HANDLER_MEMORY,
        ..Install::default()
    };
    let context = spind.install(&install, &std::fs::read(file)?)?;
    let host = context.host.ok_or("no host memory")?;
    println!("waiting for {expected} packets: {RULE}");
    let mut seen = 0;
    while seen < expected {
        sleep(Duration::from_millis(100));
        let rows = read_table(&host)?;
        if count(&rows) != seen {
            seen = count(&rows);
            print_table(&rows);
        }
    }
    // No handler of a removed context runs, so these counts are final.
    spind.remove(context.id)?;
    print_table(&read_table(&host)?);
    Ok(())
}
