"""Answers the requests on UDP port 7002 that the cache on the NIC cannot answer, and fills the cache.

Ends after ANSWERS of them. Usage: `main.py HANDLERS.elf ANSWERS [SOCKET]`
"""

import contextlib
import socket
import struct
import sys

import libspin

PORT = 7002
RULE = "udp dport 7002"
KEYS = 4096
ENTRIES = 1024
"""Entries of the cache."""
ENTRY = struct.Struct("<I4s16sI4x")
"""An entry of the cache: version, key, value, version. The handler uses it if both versions are equal and not 0."""
REQUEST = struct.Struct("!II16s")
"""A request: operation and key in network order, value."""
GET, SET, ANSWER = 1, 2, 4


def serve(store: list[bytes], request: bytes) -> tuple[int, bytes] | None:
    """Reads or changes the store. Returns the key and its value, or None if it is no request."""
    if len(request) != REQUEST.size:
        return None
    operation, key, value = REQUEST.unpack(request)
    if key >= KEYS or operation not in (GET, SET):
        return None
    if operation == SET:
        store[key] = value
    return key, store[key]


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: main.py HANDLERS.elf ANSWERS [SOCKET]")
    answers = int(sys.argv[2])
    store = [f"value {key}".encode().ljust(16, b"\0") for key in range(KEYS)]
    # Gets the packets that the handler passes to the kernel.
    with socket.socket(type=socket.SOCK_DGRAM) as server, libspin.Client(*sys.argv[3:]) as spind:
        server.bind(("0.0.0.0", PORT))
        context = spind.install(
            sys.argv[1], [RULE], name="cache", handler_mem=ENTRIES * ENTRY.size, verdicts=True
        )
        print(f"waiting for {answers} requests: {RULE}", flush=True)
        answered = 0
        while answered < answers:
            request, sender = server.recvfrom(2048)
            served = serve(store, request)
            if served is None:
                continue
            key, value = served
            answered += 1
            at = context.handler_memory.address + key % ENTRIES * ENTRY.size
            # Before the answer, so that a client that was told a new value never gets the old one.
            spind.write_memory(context, at, ENTRY.pack(answered, key.to_bytes(4, "big"), value, answered))
            # A sender that cannot be reached must not end the program.
            with contextlib.suppress(OSError):
                server.sendto(REQUEST.pack(ANSWER, key, value), sender)
        print(f"{answered} requests answered")


main()
