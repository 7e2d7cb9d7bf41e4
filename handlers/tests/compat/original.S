/* Start-up code of a runtime: never run by spind, but part of the image. */
    .section .vectors, "ax"
    .option norvc
    .globl _start
_start:
    j reset
    .rept 31
    j trap
    .endr
    .option rvc
reset:
    csrr a0, mhartid
    la gp, __global_pointer$
    lla t0, _start
    csrw mtvec, t0
    csrw mepc, t0
    li sp, 0x1b004000
    csrs mstatus, a0
    wfi
    mret
trap:
    csrr a1, mcause
    lui a0, 0x1b205
    sw a1, 0x54(a0)
    j trap
