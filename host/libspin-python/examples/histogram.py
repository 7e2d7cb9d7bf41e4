"""Host program of `handlers/histogram`: prints the received values and their counts."""

from common import Program, print_nonzero

BINS = 1025
"""Number of counted values."""

program = Program(scratchpad=8 << 10, host_mem=20 << 10)
program.wait()
print_nonzero(program.sum_of_clusters(BINS))
