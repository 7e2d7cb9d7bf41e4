"""Host program of `handlers/reduce`: prints the non-zero elements of the sum."""

from common import Program, print_nonzero

ELEMENTS = 512
"""Number of elements of the vector."""

program = Program(scratchpad=4 << 10, host_mem=8 << 10)
program.wait()
print_nonzero(program.sum_of_clusters(ELEMENTS))
