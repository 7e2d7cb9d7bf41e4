"""Host program of `handlers/strided_ddt`: requests blocks of 256 bytes with a stride of 512.

Prints the beginning of each received block.
"""

import struct

from common import Program

BLOCK = 256
STRIDE = 512
HOST_MEM = 2 << 20

program = Program(handler_mem=4 << 10, host_mem=HOST_MEM)
# Written in one piece, since handlers may read it at any time.
program.host.write(HOST_MEM - 8, struct.pack("<II", BLOCK, STRIDE))
program.wait()
for block in range(HOST_MEM // STRIDE - 1):
    first = program.host.read(block * STRIDE, 8)
    if any(first):
        print(f"block {block}: [{', '.join(f'{byte:02x}' for byte in first)}]")
