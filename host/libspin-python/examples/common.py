"""Shared code of the shipped handlers' host programs.

`PROGRAM IMAGE.elf MESSAGES [SOCKET]` installs the image's handlers and waits until `MESSAGES` messages have completed.
"""

import struct
import sys
import time
from collections.abc import Sequence

import libspin

RULE = "udp dport 9999"
"""Rule that matches the handlers' datagrams."""


class Program:
    """A program whose handlers are installed. They are removed when it exits."""

    def __init__(self, *, host_mem: int = 0, handler_mem: int = 0, scratchpad: int = 0) -> None:
        """Installs the handlers named on the command line."""
        if len(sys.argv) not in (3, 4):
            sys.exit("usage: PROGRAM IMAGE.elf MESSAGES [SOCKET]")
        self.messages = int(sys.argv[2])
        self.spind = libspin.Client(*sys.argv[3:])
        self.context = self.spind.install(
            sys.argv[1], [RULE], host_mem=host_mem, handler_mem=handler_mem, scratchpad=scratchpad
        )

    def wait(self) -> None:
        """Prints that packets may be sent, and waits until the messages have completed."""
        print(f"waiting for {self.messages} messages", flush=True)
        while self.counter("messages") < self.messages:
            time.sleep(0.02)

    def counter(self, name: str) -> int:
        """Reads one of the context's counters."""
        own = next(info for info in self.spind.list() if info.context == self.context.id)
        return own.counters.get(name, 0)

    @property
    def host(self) -> libspin.HostMemory:
        """Host memory, if some was requested."""
        if self.context.host is None:
            raise LookupError("no host memory")
        return self.context.host

    def words(self, offset: int, count: int) -> Sequence[int]:
        """Reads words of host memory."""
        return struct.unpack(f"<{count}I", self.host.read(offset, 4 * count))

    def sum_of_clusters(self, length: int) -> list[int]:
        """Adds up the vectors of `length` words that the clusters wrote to host memory, one after the other."""
        clusters = self.spind.capabilities().machine.clusters
        words = self.words(0, clusters * length)
        return [sum(words[index::length]) & 0xFFFFFFFF for index in range(length)]


def print_nonzero(words: Sequence[int]) -> None:
    """Prints the non-zero words with their indices."""
    for index, word in enumerate(words):
        if word:
            print(index, word)
