"""Host program of `handlers/aggregate`: prints the sum of the last completed message."""

from common import Program

program = Program(scratchpad=4 << 10, host_mem=4 << 10)
program.wait()
print("sum", program.host.u32(0))
