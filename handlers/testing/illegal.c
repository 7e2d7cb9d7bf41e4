/* Runs an illegal instruction: all bits set is defined never to be an instruction (RISC-V ISA manual, 1.5). */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    (void)args;
    __asm__ volatile(".word 0xffffffff");
}
