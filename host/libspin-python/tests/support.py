"""A running spind, handler images, frames and captures for tests."""

import os
import struct
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

import libspin

ROOT = Path(__file__).resolve().parents[3]
COUNT_SOURCES = ROOT / "host/libspin-c/examples/count_sources_handlers.c"
RULE = "udp dport 9999"


def compile_handlers(source: Path, to: Path) -> Path:
    image = to / source.with_suffix(".elf").name
    subprocess.run([ROOT / "handlers/sdk/bin/spin-cc", source, "-o", image, "--quiet"], check=True)
    return image


def datagram(host: int, payload: bytes = b"payload") -> bytes:
    """A frame with a UDP datagram from 10.0.0.`host` to port 9999, without a UDP checksum."""
    udp = struct.pack("!4H", 1234, 9999, 8 + len(payload), 0) + payload
    addresses = bytes([10, 0, 0, host, 10, 0, 0, 99])
    ip = struct.pack("!2B3H2BH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + addresses
    total = sum(struct.unpack("!10H", ip))
    checksum = ~(total + (total >> 16)) & 0xFFFF
    ip = ip[:10] + struct.pack("!H", checksum) + ip[12:]
    return bytes([2] * 6) + bytes([4] * 6) + b"\x08\x00" + ip + udp


def pcap(*frames: bytes) -> bytes:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(struct.pack("<4I", 0, 0, len(frame), len(frame)) + frame for frame in frames)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.005)


class SpindTest(unittest.TestCase):
    """Tests with a running spind, and the handlers that count packets by source."""

    folder: Path
    socket: Path
    image: Path
    spind: "subprocess.Popen[bytes]"

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.image = compile_handlers(COUNT_SOURCES, cls.folder)
        cls.socket, cls.spind = start_spind(cls.folder)
        cls.addClassCleanup(stop, cls.spind)

    def setUp(self) -> None:
        # spind removes contexts soon after their client has closed its connection.
        spind = self.connect()
        wait_until(lambda: not spind.list())

    def connect(self) -> libspin.Client:
        client = libspin.Client(self.socket)
        self.addCleanup(client.close)
        return client


def start_spind(folder: Path) -> "tuple[Path, subprocess.Popen[bytes]]":
    """Starts the spind of the folder SPIN_BIN, and waits until it listens."""
    socket = folder / "spind.sock"
    program = Path(os.environ.get("SPIN_BIN", ROOT / "target/debug")) / "spind"
    command: list[str | Path] = [program, "--nic", "loopback", "--socket", socket]
    spind = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert spind.stderr is not None
    log = b""
    while b"listening on" not in log:
        line = spind.stderr.readline()
        assert line, log
        log += line
    return socket, spind


def stop(spind: "subprocess.Popen[bytes]") -> None:
    spind.kill()
    spind.communicate()
