/* Polls in one task for the send of the previous task. A command is complete when its task's completion is reported, so the wait
 * ends at once. */
#include <spin.h>

SPIN_HANDLER_DATA spin_cmd_t earlier = 0;

void payload_handler(handler_args_t *args) {
    const task_t *task = args->task;
    bool completed = earlier == 0;
    while (!completed) spin_cmd_test(earlier, &completed);
    spin_send_packet((void *)task->l2_pkt_mem, task->pkt_mem_size, &earlier);
}
