/* A handler that falls off its end: into a function that writes to host memory and returns. The completion handler falls out of the code
 * altogether: nothing lies behind it but zeroes, which are no instruction. */
#include <handler.h>

__asm__(".section .text.falls, \"ax\"\n"
        "falls_ph:\n"
        "    lw s1, 0(a0)\n" /* the task */
        "what_follows:\n"
        "    mv a0, s1\n"
        "    tail follows\n"
        ".section .text.zz_last, \"ax\"\n"
        "falls_th:\n"
        "    li s1, 1\n"
        "    .zero 64\n");
void falls_ph(handler_args_t *args);
void falls_th(handler_args_t *args);

__attribute__((used)) void follows(task_t *task) {
    spin_cmd_t handle;
    uint64_t host = (uint64_t)task->host_mem_high << 32 | task->host_mem_low;
    spin_write_to_host(host, 0xf011035, &handle);
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = falls_ph;
    *th = falls_th;
    *handler_mem = NULL;
}
