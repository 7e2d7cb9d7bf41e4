"""Requests: contexts, options, counters, NIC memory, captures, errors."""

import json
import re
from dataclasses import asdict

import libspin
from support import COUNT_SOURCES, ROOT, RULE, SpindTest, datagram, pcap, wait_until


class Contexts(SpindTest):
    def test_packets_are_counted_by_source(self) -> None:
        with self.connect() as spind:
            context = spind.install(self.image, [RULE], host_mem=1024, placement="any")
            self.assertEqual(context.warnings, ())
            sent, counts = spind.replay(pcap(*(datagram(host) for host in [3, 7, 3, 200, 3, 7])))
            self.assertEqual((counts.arrived, counts.unmatched, counts.sent), (6, 0, 0))
            self.assertEqual(len(sent), 24, "a capture without frames")
            host = context.host
            assert host is not None
            counted = {source: host.u32(4 * source) for source in range(256) if host.u32(4 * source)}
            self.assertEqual(counted, {3: 3, 7: 2, 200: 1})
            copies = [event for event in spind.events(context) if event.kind == "copied"]
            self.assertEqual(len(copies), 6)
            self.assertEqual({copy.host for copy in copies}, {host.address + 4 * source for source in counted})
            self.assertEqual({(copy.direction, copy.length, copy.pc) for copy in copies}, {("to-host", 4, None)})
        other = self.connect()
        wait_until(lambda: other.list() == ())

    def test_nic_memory_is_written(self) -> None:
        spind = self.connect()
        context = spind.install(self.image, [RULE], handler_mem=4096)
        self.assertIsNone(context.host)
        address, size = context.handler_memory
        self.assertGreaterEqual(size, 4096)
        spind.write_memory(context, address, memoryview(b"12345678"))
        self.assertEqual(spind.read_memory(context.id, address + 2, 4), b"3456")
        spind.write_memory(context, address, b"unit", unit=0)
        self.assertEqual(spind.read_memory(context, address, 4, unit=0), b"unit")
        with self.assertRaises(libspin.RefusedError):
            spind.read_memory(context, address, 4, unit=1)
        with self.assertRaises(libspin.RefusedError):
            spind.read_memory(context, 4, 4)
        with self.assertRaisesRegex(libspin.InvalidValueError, "at most 16777216"):
            spind.read_memory(context, address, 1 << 62)

    def test_each_option_has_its_effect(self) -> None:
        spind = self.connect()
        first = spind.install(self.image, ["udp dport 1"])
        spind.install(
            self.image.read_bytes(),
            ["udp dport 2", "udp dport 3"],
            name="a name",
            eom="payload[0:1] = 0x01",
            key="flow + payload[2:4]",
            header="payload[0:1] = 0x02",
            early="drop",
            handlers="ph=payload_handler",
            host_mem=4096,
            handler_mem=4096,
            scratchpad=128,
            l1_bytes=64,
            instruction_limit=1 << 40,
            watchdog_us=6000,
            message_timeout_us=7000,
            doorbell_us=8000,
            abi="wire",
            checks="exact",
            isolation="message",
            placement="home",
            tier="auto",
            weight=9,
            full="kill",
            hpus=2,
            verdicts=False,
            replaces=first,
        )
        info = next(info for info in spind.list() if info.name == "a name")
        self.assertEqual(info.rules, ("udp dport 2", "udp dport 3"))
        self.assertEqual((info.eom, info.key), ("payload[0:1] = 0x01", "flow + payload[2:4]"))
        self.assertEqual(info.header, ("payload[0:1] = 0x02", "drop"))
        self.assertEqual((info.handlers, info.host_mem), ((False, True, False), 4096))
        run = info.run
        self.assertEqual((run.abi, run.checks, run.isolation, run.placement), ("wire", "exact", "message", "home"))
        self.assertEqual((run.weight, run.full, run.hpus, run.verdicts), (9, "kill", 2, False))
        self.assertEqual((run.instruction_limit, run.watchdog_us), (1 << 40, 6000))
        self.assertEqual((run.message_timeout_us, run.doorbell_us), (7000, 8000))
        assert info.tier is not None
        self.assertFalse(info.tier.kernel)
        self.assertRegex(info.tier.reason, "kernel tier is off")
        with self.assertRaisesRegex(libspin.RefusedError, "kernel tier is off"):
            spind.install(self.image, [RULE], tier="kernel")
        with self.assertRaisesRegex(libspin.RefusedError, "to be installed for pspin"):
            spind.install(self.image, [RULE], abi="pspin")
        with self.assertRaisesRegex(libspin.RefusedError, "no verdicts"):
            spind.install(self.image, [RULE], verdicts=True)

    def test_names_and_rules(self) -> None:
        spind = self.connect()
        context = spind.install(self.image, [RULE])
        self.assertEqual(spind.find(COUNT_SOURCES.stem), context.id)
        self.assertEqual(spind.find(str(context.id)), context.id)
        spind.set_rules(context, ["udp dport 5"], eom="never")
        info = spind.list()[0]
        self.assertEqual((info.rules, info.eom), (("udp dport 5",), "never"))
        self.assertTrue(info.own)
        spind.install(self.image, [RULE])
        with self.assertRaisesRegex(libspin.AmbiguousError, "2 contexts are named"):
            spind.find(COUNT_SOURCES.stem)
        spind.remove(context)
        self.assertNotEqual(spind.find(COUNT_SOURCES.stem), context.id)
        with self.assertRaisesRegex(libspin.NotFoundError, "spinctl list"):
            spind.find("nobody")

    def test_a_context_outlives_its_client(self) -> None:
        with self.connect() as spind:
            context = spind.install(self.image, [RULE], host_mem=4096, lifetime="daemon")
            self.assertIsNone(context.host, "it is mapped by a request of its own")
        other = self.connect()
        self.assertEqual([(info.context, info.lifetime) for info in other.list()], [(context.id, "daemon")])
        self.assertEqual(len(other.host_memory(context)), 4096)
        other.remove(context)

    def test_what_spind_tells_has_fields_for_all(self) -> None:
        spind = self.connect()
        spind.install(self.image, [RULE], header="payload[0:1] = 1")
        spind.replay(pcap(datagram(1, b"\1")))
        told = spind._spind
        for text, value in [
            (told.contexts(), [asdict(info) for info in spind.list()]),
            (told.capabilities(), asdict(spind.capabilities())),
            (told.users(), asdict(spind.users())),
        ]:
            self.assertEqual(omit_empty(json.loads(text)), omit_empty(json.loads(json.dumps(value))))
        stats = spind.stats()
        self.assertEqual(set(json.loads(told.stats())), set(asdict(stats)))
        self.assertEqual(stats.contexts[0].counters["payload_runs"], 1)
        self.assertGreaterEqual(stats.engine["payload_runs"], 1)
        self.assertEqual([latency.name for latency in stats.latencies], ["total", "queueing", "handler"])
        self.assertGreaterEqual(stats.latencies[0].count, 1)
        self.assertEqual(spind.capabilities().machine.clusters, 4)


def omit_empty(value: object) -> object:
    """JSON without what a peer may omit; counters are objects or lists of pairs."""
    if isinstance(value, dict):
        if "counters" in value:
            value["counters"] = dict(value["counters"])
        return {name: omit_empty(part) for name, part in value.items() if part not in (None, False, [])}
    return [omit_empty(part) for part in value] if isinstance(value, list) else value


class Errors(SpindTest):
    def test_codes_are_those_of_the_c_header(self) -> None:
        header = (ROOT / "host/libspin-c/include/spin_client.h").read_text()
        codes = {name: int(code) for name, code in re.findall(r"SPIN_E_(\w+) = (\d+),", header)}
        names = {
            libspin.InvalidValueError: "VALUE",
            libspin.ConnectError: "CONNECT",
            libspin.ClosedError: "CLOSED",
            libspin.RefusedError: "REFUSED",
            libspin.ProtocolError: "PROTOCOL",
            libspin.NotFoundError: "NOT_FOUND",
            libspin.AmbiguousError: "AMBIGUOUS",
            libspin.SharedMemoryError: "MEMORY",
            libspin.ResourceError: "SYSTEM",
            libspin.InternalError: "INTERNAL",
        }
        self.assertEqual({error: error.code for error in names}, {error: codes[name] for error, name in names.items()})
        self.assertEqual(set(names), set(libspin.Error.__subclasses__()))

    def test_refusals_have_spinds_words(self) -> None:
        spind = self.connect()
        with self.assertRaisesRegex(libspin.RefusedError, "dpart") as refused:
            spind.install(self.image, ["udp dpart 9999"])
        self.assertEqual(refused.exception.code, 7)
        with self.assertRaisesRegex(libspin.RefusedError, "ELF"):
            spind.install(b"no image", [RULE])
        with self.assertRaises(libspin.RefusedError):
            spind.remove(12345)
        self.assertEqual(spind.list(), (), "the connection is usable after a refusal")

    def test_bad_values_are_named(self) -> None:
        spind = self.connect()
        for options, words in [
            ({"full": "shout"}, "unknown variant `shout`, expected one of `drop`, `wait`, `mark`, `kill`"),
            ({"weight": -1}, "invalid value: integer `-1`, expected u32"),
            ({"handlers": "xh=a"}, '"xh" is no handler'),
        ]:
            with self.assertRaisesRegex(libspin.InvalidValueError, words):
                spind.install(self.image, [RULE], **options)  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            spind.install(5, [RULE])  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            spind.install(self.image, [RULE], wieght=1)  # type: ignore[call-arg]
        with self.assertRaises(FileNotFoundError):
            spind.install("/nowhere/handler.elf", [RULE])
        with self.assertRaises(OverflowError):
            spind.remove(-1)

    def test_a_client_is_closed(self) -> None:
        spind = self.connect()
        spind.close()
        spind.close()
        with self.assertRaisesRegex(libspin.ClosedError, "connect again"):
            spind.list()

    def test_nobody_listens(self) -> None:
        with self.assertRaisesRegex(libspin.ConnectError, f"{self.folder}/none: .*is it running") as refused:
            libspin.Client(self.folder / "none")
        self.assertEqual(refused.exception.code, 5)
