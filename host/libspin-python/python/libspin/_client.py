"""Connections to spind and contexts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from . import _libspin
from ._events import Events
from ._libspin import DEFAULT_SOCKET, HostMemory
from ._values import (
    Abi,
    Area,
    Areas,
    Capabilities,
    Checks,
    ContextInfo,
    Early,
    Full,
    Isolation,
    Lifetime,
    Placement,
    Replayed,
    Stats,
    Tier,
    Users,
    decode,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def alloc(length: int, page: int = 0) -> HostMemory:
    """Allocates memory that can be attached to contexts, zeroed.

    `page` is the size of huge pages, of which `length` is a multiple (see /sys/kernel/mm/hugepages); 0: usual pages.
    """
    return _libspin.alloc(length, page)


@dataclass(frozen=True, eq=False)
class Context:
    """An installed execution context. It lives as long as its client, unless it has another lifetime."""

    id: int
    host: HostMemory | None
    """Host memory, if some was requested. It outlives context and client."""
    areas: Areas
    warnings: Sequence[str]
    """Warnings of spind: rules that never hold, why handlers are interpreted."""

    @property
    def handler_memory(self) -> Area:
        """Address and size of handler memory in NIC memory, for `Client.read_memory`."""
        return self.areas.handler_mem


class Client:
    """A connection to spind. Several threads may use it: their requests take turns.

    It is a context manager that closes the connection. A request that Ctrl-C interrupts closes it, too.
    """

    def __init__(self, path: str | PathLike[str] = DEFAULT_SOCKET) -> None:
        """Connects to the daemon whose control socket is at `path`."""
        self._spind = _libspin.Client(path)

    def close(self) -> None:
        """Closes the connection. spind removes the client's contexts, unless they have another lifetime."""
        self._spind.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def capabilities(self) -> Capabilities:
        """Returns the capabilities of spind and its machine."""
        return decode(Capabilities, self._spind.capabilities())

    def install(
        self,
        image: "str | PathLike[str] | ReadableBuffer",
        rules: Sequence[str],
        *,
        name: str | None = None,
        eom: str | None = None,
        key: str | None = None,
        header: str | None = None,
        early: Early | None = None,
        handlers: str | None = None,
        host_mem: int | None = None,
        handler_mem: int | None = None,
        scratchpad: int | None = None,
        l1_bytes: int | None = None,
        instruction_limit: int | None = None,
        watchdog_us: int | None = None,
        message_timeout_us: int | None = None,
        doorbell_us: int | None = None,
        abi: Abi | None = None,
        checks: Checks | None = None,
        isolation: Isolation | None = None,
        placement: Placement | None = None,
        tier: Tier | None = None,
        weight: int | None = None,
        full: Full | None = None,
        hpus: int | None = None,
        verdicts: bool | None = None,
        replaces: int | Context | None = None,
        lifetime: Lifetime | None = None,
        unit: int | None = None,
        units: int | Literal["all"] | None = None,
        handler_mem_per_unit: bool | None = None,
    ) -> Context:
        """Installs the handlers of `image`, an ELF file's path or bytes.

        The options are those of `spinctl install`, which README.md lists. None stands for the default.
        """
        options = {option: value for option, value in locals().items() if value is not None}
        del options["self"], options["image"]
        options["rules"] = _texts(rules)
        if replaces is not None:
            options["replaces"] = _id(replaces)
        if isinstance(image, (str, PathLike)):
            options.setdefault("name", Path(image).stem)
            image = Path(image).read_bytes()
        return self._install(options, image)

    def _install(self, options: dict[str, Any], image: "ReadableBuffer") -> Context:
        context, host, warnings, areas = self._spind.install(json.dumps(options), _bytes(image))
        return Context(context, host, decode(Areas, areas), tuple(warnings))

    def host_memory(self, context: int | Context) -> HostMemory:
        """Maps the host memory of a context of this user, possibly of another process."""
        return self._spind.host_memory(_id(context))

    def attach(self, context: int | Context, memory: HostMemory) -> None:
        """Attaches memory of `alloc` to a context, which may have 16 such regions.

        Handlers reach it from `memory.address` on, until it is detached or the context is gone. Keep `memory` until then:
        its addresses may become other memory's.
        """
        self._spind.attach(_id(context), memory)

    def detach(self, context: int | Context, memory: HostMemory) -> None:
        """Detaches memory from a context."""
        self._spind.detach(_id(context), memory)

    def events(self, context: int | Context) -> Events:
        """Returns a context's events, beginning with the oldest one that is still stored."""
        return Events(self._spind.events(_id(context)))

    def read_memory(self, context: int | Context, address: int, length: int, *, unit: int = 0) -> bytes:
        """Reads NIC memory of a context that this client installed, at most 16 MiB at a time.

        `unit` counts from 0 among the units that run the context. Units have scratchpads of their own, and handler memory too
        with `handler_mem_per_unit`.
        """
        return self._spind.read_memory(_id(context), unit, address, length)

    def write_memory(self, context: int | Context, address: int, data: "ReadableBuffer", *, unit: int = 0) -> None:
        """Writes NIC memory of a context that this client installed. Aligned doublewords are written atomically.

        For `unit` see `read_memory`.
        """
        self._spind.write_memory(_id(context), unit, address, _bytes(data))

    def set_rules(self, context: int | Context, rules: Sequence[str], *, eom: str | None = None) -> None:
        """Replaces all rules of a context. Without `eom`, each datagram is a message."""
        self._spind.set_rules(_id(context), _texts(rules), eom)

    def remove(self, context: int | Context) -> None:
        """Removes a context."""
        self._spind.remove(_id(context))

    def find(self, name: str) -> int:
        """Returns the id of the context with that name or id."""
        return self._spind.find(name)

    def list(self) -> tuple[ContextInfo, ...]:
        """Returns the contexts in order of priority."""
        return decode(tuple[ContextInfo, ...], self._spind.contexts())

    def stats(self) -> Stats:
        """Reads all counters."""
        return decode(Stats, self._spind.stats())

    def users(self) -> Users:
        """Reads the bills of users."""
        return decode(Users, self._spind.users())

    def replay(self, pcap: "ReadableBuffer") -> tuple[bytes, Replayed]:
        """On a spind with `--nic loopback`: receives the frames of a pcap, and returns a pcap of the frames sent."""
        sent, counts = self._spind.replay(_bytes(pcap))
        return sent, decode(Replayed, counts)


def _id(context: int | Context) -> int:
    return context.id if isinstance(context, Context) else context


def _texts(rules: Sequence[str]) -> "list[str]":
    # A string is a sequence of strings, too.
    return [rules] if isinstance(rules, str) else [*rules]


def _bytes(data: "ReadableBuffer") -> bytes:
    # Of a number, `bytes` would make that many zeroes.
    return data if isinstance(data, bytes) else memoryview(data).tobytes()
