"""Prints packets and bytes by IPv4 source address of UDP port 7001, most packets first.

Prints while packets arrive, and when PACKETS have. Usage: `main.py HANDLERS.elf PACKETS [SOCKET]`
"""

import sys
import time
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import NamedTuple

import libspin

RULE = "udp dport 7001"
ROWS = 1025
"""Rows of the table. The last one is for sources for which it has no room."""
ROW = 24
"""Bytes of a row in host memory: address, packets, bytes."""
HANDLER_MEMORY = 1025 * 32


class Row(NamedTuple):
    address: IPv4Address
    packets: int
    bytes: int


def read_table(host: libspin.HostMemory) -> list[Row]:
    """Reads the rows in use, sorted. Handlers write at any time, but each word as a whole."""

    def row(at: int) -> Row:
        address = IPv4Address(host.u32(at).to_bytes(4, "little"))
        return Row(address, host.u64(at + 8), host.u64(at + 16))

    rows = [row(number * ROW) for number in range(ROWS)]
    return sorted((row for row in rows if row.packets), key=lambda row: -row.packets)


def count(rows: Sequence[Row]) -> int:
    return sum(row.packets for row in rows)


def print_table(rows: Sequence[Row]) -> None:
    print(f"{count(rows)} packets, {len(rows)} sources")
    for row in rows:
        print(f"{row.address!s:<15} {row.packets:>9} packets {row.bytes:>12} bytes", flush=True)


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: main.py HANDLERS.elf PACKETS [SOCKET]")
    expected = int(sys.argv[2])
    with libspin.Client(*sys.argv[3:]) as spind:
        context = spind.install(
            sys.argv[1], [RULE], name="sources", host_mem=ROWS * ROW, handler_mem=HANDLER_MEMORY
        )
        host = context.host
        assert host is not None
        print(f"waiting for {expected} packets: {RULE}", flush=True)
        seen = 0
        while seen < expected:
            time.sleep(0.1)
            rows = read_table(host)
            if count(rows) != seen:
                seen = count(rows)
                print_table(rows)
        # No handler of a removed context runs, so these counts are final.
        spind.remove(context)
        print_table(read_table(host))


main()
