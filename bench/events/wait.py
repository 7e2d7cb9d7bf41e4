"""Waits in asyncio, and prints the time of each wake-up: `wait.py events SOCKET` or `wait.py eventfd NUMBER`."""

import asyncio
import os
import sys
import time


def taken() -> None:
    print(time.monotonic_ns(), flush=True)


async def events(socket: str) -> None:
    import libspin

    ring = libspin.Client(socket).events(1)
    # Printed from within the loop, which then waits.
    asyncio.get_running_loop().call_later(0.1, print, "ready")
    asyncio.get_running_loop().call_later(0.1, sys.stdout.flush)
    async for _ in ring:
        taken()


async def eventfd(number: int) -> None:
    def readable() -> None:
        now = time.monotonic_ns()
        os.read(number, 8)
        print(now, flush=True)

    asyncio.get_running_loop().add_reader(number, readable)
    print("ready", flush=True)
    await asyncio.Event().wait()


how, what = sys.argv[1:]
asyncio.run(events(what) if how == "events" else eventfd(int(what)))
