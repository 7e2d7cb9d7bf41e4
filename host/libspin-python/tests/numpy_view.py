"""A view by NumPy: run with NumPy on the path."""

import gc
import unittest

import libspin
import numpy
from support import RULE, SpindTest, datagram, pcap


class NumPy(SpindTest):
    def test_an_array_is_a_view(self) -> None:
        spind = libspin.Client(self.socket)
        context = spind.install(self.image, [RULE], host_mem=1024)
        assert context.host is not None
        counts = numpy.frombuffer(context.host, dtype="<u4")
        self.assertEqual((counts.shape, int(counts.sum())), ((256,), 0))
        spind.replay(pcap(datagram(3), datagram(3), datagram(9)))
        self.assertEqual((counts[3], counts[9], counts.sum()), (2, 1, 3))
        counts[:] = 0
        self.assertEqual(context.host.u32(12), 0)
        context.host.write(4, numpy.arange(2, dtype="<u4"))
        self.assertEqual(counts[2], 1)
        self.assertEqual(numpy.asarray(memoryview(context.host)).nbytes, 1024)
        spind.close()
        del spind, context
        gc.collect()
        self.assertEqual(counts[2], 1, "the array keeps the memory")


if __name__ == "__main__":
    unittest.main()
