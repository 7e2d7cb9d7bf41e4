/* Trains a perceptron: samples of 8 inputs and a label. Readers and writers of the weights have a lock, whose count of readers is
 * preset, so that no reader ever takes the global lock. */
#include <handler.h>
#include <packets.h>
#include <pspin.h>
#include <spin_conf.h>

#define INPUTS 8
#define READERS 32

typedef struct {
    spin_rw_lock_t lock;
    volatile int32_t weights[INPUTS];
    volatile int32_t positive;
} model_t;

__handler__ void perceptron_hh(handler_args_t *args) {
    model_t *model = (model_t *)args->task->scratchpad[0];
    if (args->cluster_id != 0) return;
    spin_lock_init(&model->lock.glock);
    model->lock.num_readers = READERS;
    for (int i = 0; i < INPUTS; i++) model->weights[i] = 100 * i;
}

__handler__ void perceptron_ph(handler_args_t *args) {
    task_t *task = args->task;
    model_t *model = (model_t *)task->scratchpad[0];
    uint8_t *payload;
    uint32_t length;
    int32_t sum = 0;
    GET_IP_UDP_PLD(task->pkt_mem, payload, length);
    int32_t *sample = (int32_t *)payload, label = sample[INPUTS];

    if (length < (INPUTS + 1) * sizeof(int32_t)) return;
    spin_rw_lock_r_lock(&model->lock);
    for (int i = 0; i < INPUTS; i++) sum += model->weights[i] * sample[i];
    spin_rw_lock_r_unlock(&model->lock);
    if (sum >= 0) amo_add(&model->positive, 1);
    spin_rw_lock_w_lock(&model->lock);
    for (int i = 0; i < INPUTS; i++) model->weights[i] += label * sample[i];
    spin_rw_lock_w_unlock(&model->lock);
}

__handler__ void perceptron_th(handler_args_t *args) {
    task_t *task = args->task;
    model_t *model = (model_t *)task->scratchpad[0];
    uint64_t host_address = task->host_mem_high;
    spin_cmd_t handle;
    host_address = (host_address << 32) | task->host_mem_low;
    for (int i = 0; i < INPUTS; i++) {
        spin_write_to_host(host_address + 8 * i, (uint64_t)(uint32_t)model->weights[i], &handle);
        spin_cmd_wait(handle);
    }
}

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
    volatile handler_fn handlers[] = {perceptron_hh, perceptron_ph, perceptron_th};
    *hh = handlers[0];
    *ph = handlers[1];
    *th = handlers[2];
    *handler_mem_ptr = 0;
}
