"""Event rings: reading, waiting."""

import asyncio
import select
import threading
from pathlib import Path

from support import RULE, SpindTest, compile_handlers, datagram, pcap, wait_until

FAULT = """#include <spin.h>
void payload_handler(handler_args_t *args) { (void)args; *(volatile unsigned *)(uintptr_t)12 = 1; }
"""


class Events(SpindTest):
    def test_a_fault_is_described(self) -> None:
        source = Path(self.folder) / "fault.c"
        source.write_text(FAULT)
        spind = self.connect()
        context = spind.install(compile_handlers(source, self.folder), [RULE])
        events = spind.events(context)
        self.assertIsNone(events.poll())
        spind.replay(pcap(datagram(1)))
        self.assertTrue(events.wait(20))
        (event,) = events
        self.assertEqual((event.kind, event.stage, event.cause, event.address), ("fault", "payload", 7, 12))
        self.assertEqual((event.length, event.host, event.direction), (None, None, None))
        self.assertIn("payload handler: store outside its memory", str(event))
        self.assertEqual(list(events), [])
        info = spind.list()[0].faults[0]
        self.assertEqual((info.handler, info.fault.cause, info.fault.pc), ("payload", "store-access", event.pc))
        self.assertTrue(info.symbol.startswith("payload_handler"))

    def test_a_wait_ends(self) -> None:
        spind = self.connect()
        events = spind.events(spind.install(self.image, [RULE]))
        self.assertFalse(events.wait(0))
        self.assertFalse(events.wait(0.001))
        for timeout in [-1.0, float("nan"), float("inf")]:
            with self.assertRaises(ValueError):
                events.wait(timeout)

    def test_an_event_wakes_a_thread(self) -> None:
        spind = self.connect()
        events = spind.events(spind.install(self.image, [RULE], host_mem=1024))
        woken = []
        thread = threading.Thread(target=lambda: woken.append(events.wait()))
        thread.start()
        spind.replay(pcap(datagram(1)))
        thread.join(20)
        self.assertEqual(woken, [True])
        self.assertEqual([event.kind for event in events], ["copied"])

    def test_the_descriptor_is_readable_while_events_are_unread(self) -> None:
        spind = self.connect()
        events = spind.events(spind.install(self.image, [RULE], host_mem=1024))

        def is_readable(timeout: float = 0) -> bool:
            return bool(select.select([events], [], [], timeout)[0])

        self.assertEqual(events.fileno(), events.fileno())
        for _ in range(2):
            # It may be readable without an event.
            wait_until(lambda: events.poll() is None and not is_readable())
            spind.replay(pcap(datagram(1), datagram(2)))
            self.assertTrue(is_readable(20))
            self.assertIsNotNone(events.poll())
            self.assertTrue(is_readable())
            self.assertIsNotNone(events.poll())

    def test_a_task_waits_for_events(self) -> None:
        spind = self.connect()
        events = spind.events(spind.install(self.image, [RULE], host_mem=1024))

        async def read() -> None:
            self.assertEqual((await anext(events)).kind, "copied")

        async def read_while_packets_arrive() -> None:
            reading = asyncio.create_task(read())
            await asyncio.sleep(0.02)
            self.assertFalse(reading.done())
            spind.replay(pcap(datagram(1)))
            await asyncio.wait_for(reading, 20)
            unread = asyncio.create_task(read())
            await asyncio.sleep(0)
            unread.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await unread

        asyncio.run(read_while_packets_arrive())

    def test_lost_events_are_counted(self) -> None:
        spind = self.connect()
        context = spind.install(self.image, [RULE], host_mem=1024)
        events = spind.events(context)
        for _ in range(20):
            spind.replay(pcap(*[datagram(1)] * 50))
        read = len(list(events))
        self.assertGreater(events.lost, 0)
        self.assertEqual(read + events.lost, 1000)
