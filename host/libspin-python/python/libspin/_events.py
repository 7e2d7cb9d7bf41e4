"""Reading a context's event ring."""

import asyncio
from collections.abc import Iterator
from typing import Self

from . import _libspin
from ._libspin import Event


class Events:
    """A context's event ring in shared memory. Reading it makes no request to spind.

    `for event in events` reads the events that there are. `async for event in events` also waits for more, in one task.
    """

    def __init__(self, events: _libspin.Events) -> None:
        self._events = events

    def poll(self) -> Event | None:
        """Returns the next unread event, if there is one."""
        return self._events.poll()

    def wait(self, timeout: float | None = None) -> bool:
        """Sleeps until an event can be read, at most for `timeout` seconds. Returns whether there is one."""
        return self._events.wait(timeout)

    def fileno(self) -> int:
        """Returns a descriptor for `select` and event loops.

        It is readable while there are unread events, and may be readable without one: `poll` until there is none.
        """
        return self._events.fileno()

    @property
    def lost(self) -> int:
        """Number of events that were overwritten before they were read."""
        return self._events.lost

    def __iter__(self) -> Iterator[Event]:
        return iter(self.poll, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while (event := self.poll()) is None:
            await _until_readable(self.fileno())
        return event


async def _until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
