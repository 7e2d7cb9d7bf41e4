"""Host program of `handlers/kvstore`: provides the cache's memory and prints the number of answered requests.

The cache is lost when the program exits.
"""

from common import Program

program = Program(handler_mem=8 << 10)
program.wait()
print(program.counter("tx_packets"), "requests answered")
