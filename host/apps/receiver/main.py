"""Receives messages on UDP port 7003, checks and acknowledges them. Ends after MESSAGES of them.

Usage: `main.py HANDLERS.elf MESSAGES [SOCKET]`
"""

import contextlib
import select
import socket
import sys
from ipaddress import IPv4Address

import libspin

PORT = 7003
# Datagrams with at least a message's header.
RULE = "udp dport 7003 and l4[4:2] in 24..65535"
SLOTS = 16
SLOT = 65536
"""Bytes of a slot in host memory: descriptor and message.

The descriptor has length (8 bytes, 0: none), id, address, port."""
DESCRIPTOR = 64
STATE = 16
"""Bytes of a slot's state in handler memory."""


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


class Receiver:
    def __init__(self, spind: libspin.Client, server: socket.socket, file: str) -> None:
        self.spind, self.server, self.received = spind, server, 0
        self.context = spind.install(
            file,
            [RULE],
            name="receiver",
            key="flow + payload[0:4]",  # sender and id: a message
            eom="payload[12:4] = 1",  # its last packet
            message_timeout_us=2_000_000,  # if that is lost
            host_mem=SLOTS * SLOT,
            handler_mem=SLOTS * STATE,
            verdicts=True,
        )

    def send(self, word: int, to: tuple[str, int]) -> None:
        # A sender that cannot be reached must not end the program.
        with contextlib.suppress(OSError):
            self.server.sendto(word.to_bytes(4, "big"), to)

    def take(self, slot: int) -> None:
        """Checks the message of a slot if there is one, frees the slot, and acknowledges the message."""
        host = self.context.host
        assert host is not None
        # The handler writes the length last.
        length = host.u64(slot * SLOT)
        if not length:
            return
        number, address, port = (host.u32(slot * SLOT + at) for at in (8, 12, 16))
        message = host.read(slot * SLOT + DESCRIPTOR, length)
        right = int.from_bytes(message[:8], "little") == fnv1a(message[8:])
        print(f"message {number}: {length} bytes, checksum {'right' if right else 'WRONG'}", flush=True)
        host.write(slot * SLOT, bytes(8))
        self.spind.write_memory(self.context, self.context.handler_memory.address + slot * STATE, bytes(4))
        self.received += 1
        if right:
            self.send(number, (str(IPv4Address(address.to_bytes(4, "little"))), port))

    def run(self, expected: int) -> None:
        events = self.spind.events(self.context)
        print(f"waiting for {expected} messages: {RULE}", flush=True)
        while self.received < expected:
            ready, _, _ = select.select([events.fileno(), self.server.fileno()], [], [])
            if self.server.fileno() in ready:
                # A datagram without a header reaches the socket past the handlers, and asks for the number of messages.
                self.send(self.received, self.server.recvfrom(0)[1])
            for _ in events:
                pass
            for slot in range(SLOTS):
                self.take(slot)


if len(sys.argv) not in (3, 4):
    sys.exit("usage: main.py HANDLERS.elf MESSAGES [SOCKET]")
with socket.socket(type=socket.SOCK_DGRAM) as udp, libspin.Client(*sys.argv[3:]) as client:
    udp.bind(("0.0.0.0", PORT))
    Receiver(client, udp, sys.argv[1]).run(int(sys.argv[2]))
