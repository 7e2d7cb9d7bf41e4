"""Host program of `handlers/filtering`: datagrams from 10.0.0.1 and 10.0.0.3 get ports 7001 and 7003.

Prints source and destination port of the headers that arrive in host memory.
"""

from ipaddress import IPv4Address

import libspin
from common import Program

ENTRIES = 65_536
ENTRY = 8
RECORD = 64
PROBES = 8
"""Number of table entries where a source may be stored."""
TABLE = ENTRIES * RECORD
"""Offset of the table. The records precede it, and the word that marks it complete follows it."""
READY = TABLE + ENTRIES * ENTRY


def home(source: bytes) -> int:
    """Returns the entry where the search for a source begins."""
    return (int.from_bytes(source, "little") * 0x9E3779B1 & 0xFFFFFFFF) >> 16


def enter(host: libspin.HostMemory, source: bytes, port: int) -> None:
    """Inserts a source into the table."""
    for probe in range(PROBES):
        at = TABLE + (home(source) + probe) % ENTRIES * ENTRY
        if host.read(at, 4) in (bytes(4), source):
            host.write(at + 4, port.to_bytes(2, "big"))
            host.write(at, source)
            return
    raise RuntimeError("no room for this source: the table is too full")


program = Program(handler_mem=516 << 10, host_mem=-(-(READY + 4) // 4096) * 4096)
enter(program.host, bytes([10, 0, 0, 1]), 7001)
enter(program.host, bytes([10, 0, 0, 3]), 7003)
program.host.write(READY, (1).to_bytes(4, "little"))
program.wait()
for entry in range(ENTRIES):
    headers = program.host.read(entry * RECORD, 42)
    if any(headers):
        port = int.from_bytes(headers[36:38], "big")
        print(IPv4Address(headers[26:30]), "to port", port)
