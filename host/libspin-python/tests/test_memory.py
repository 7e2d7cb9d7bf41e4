"""Host memory: atomic copies, and views that keep it."""

import gc
import weakref
from pathlib import Path

import libspin
from support import RULE, SpindTest


def mappings() -> int:
    """Shared regions that are mapped in this process."""
    return Path("/proc/self/maps").read_text().count("spin-region")


class HostMemory(SpindTest):
    def memory(self, size: int = 8192) -> libspin.HostMemory:
        host = self.connect().install(self.image, [RULE], host_mem=size).host
        assert host is not None
        return host

    def test_bytes_and_words(self) -> None:
        host = self.memory()
        self.assertEqual(len(host), 8192)
        host.write(8, b"\1\0\0\0\2\0\0\0")
        self.assertEqual((host.u32(8), host.u32(12), host.u64(8)), (1, 2, 2 << 32 | 1))
        host.write(8190, bytearray(b"ab"))
        host.write(3, memoryview(b"0123456789")[::2])
        self.assertEqual((host.read(8189, 3), host.read(3, 5), host.read(8192, 0)), (b"\0ab", b"02468", b""))

    def test_nothing_outside_is_accessed(self) -> None:
        host = self.memory()
        for offset, length in [(8192, 1), (8191, 2), (0, 8193), (1 << 63, 1), (0, 1 << 62), ((1 << 64) - 1, 1)]:
            with self.assertRaisesRegex(IndexError, "not within a region of 8192 bytes"):
                host.read(offset, length)
        with self.assertRaises(IndexError):
            host.write(8190, b"abc")
        self.assertEqual(host.read(8190, 2), b"\0\0", "nothing is written in part")
        for offset in [-1, 1 << 64]:
            with self.assertRaises(OverflowError):
                host.read(offset, 1)
        with self.assertRaises(IndexError):
            host.u32(8192)
        for read, offset in [(host.u32, 2), (host.u64, 4)]:
            with self.assertRaisesRegex(ValueError, "not a multiple"):
                read(offset)
        with self.assertRaises(TypeError):
            host.write(0, 5)  # type: ignore[arg-type]

    def test_a_view_shows_the_memory(self) -> None:
        host = self.memory()
        view = memoryview(host)
        self.assertEqual((view.nbytes, view.format, view.readonly), (8192, "B", False))
        host.write(100, b"one")
        view[103:106] = b"two"
        self.assertEqual((bytes(view[100:106]), host.read(100, 6)), (b"onetwo", b"onetwo"))
        view.cast("I")[2] = 77
        self.assertEqual(host.u32(8), 77)
        other = self.memory()
        other.write(0, view[100:106])
        self.assertEqual(other.read(0, 6), b"onetwo", "memory is copied to memory")

    def test_a_view_keeps_the_memory(self) -> None:
        before = mappings()
        spind = libspin.Client(self.socket)
        context = spind.install(self.image, [RULE], host_mem=8192)
        assert context.host is not None
        context.host.write(4096, b"kept")
        view = memoryview(context.host)[4096:]
        context_is_alive = weakref.ref(context)
        spind.close()
        del spind, context
        gc.collect()
        self.assertIsNone(context_is_alive())
        self.assertEqual((bytes(view[:4]), mappings()), (b"kept", before + 1))
        view[:4] = b"more"
        self.assertEqual(bytes(view[:4]), b"more")
        view.release()
        gc.collect()
        self.assertEqual(mappings(), before, "memory goes with its last view")
        with self.assertRaises(ValueError):
            view[0]

    def test_memory_is_attached(self) -> None:
        with libspin.Client(self.socket) as spind:
            context = spind.install(self.image, [RULE])
            memory = libspin.alloc(8192)
            memory.write(8190, b"ab")
            self.assertEqual(bytes(memoryview(memory)[8188:]), b"\0\0ab")
            spind.attach(context, memory)
            with self.assertRaisesRegex(libspin.RefusedError, "overlap"):
                spind.attach(context, memory)
            spind.detach(context, memory)
            with self.assertRaisesRegex(libspin.RefusedError, "no attached region"):
                spind.detach(context, memory)
        with self.assertRaisesRegex(libspin.SharedMemoryError, "not whole pages"):
            libspin.alloc(4096, page=2 << 20)

    def test_another_process_maps_the_memory(self) -> None:
        installer = self.connect()
        context = installer.install(self.image, [RULE], host_mem=4096)
        assert context.host is not None
        context.host.write(0, b"shared")
        other = self.connect().host_memory(context.id)
        self.assertEqual((other.read(0, 6), other.address), (b"shared", context.host.address))
