/* Adds up the integers that the JSON texts in UDP payloads have under a key, which the application writes to handler memory. */
#include <spin.h>

#include "json_field.h"

void payload_handler(handler_args_t *args) {
    spin_packet p;
    if (args->task->handler_mem_size < sizeof(json_state) || !spin_parse_udp(args, &p)) return;
    json_state *state = (json_state *)args->task->handler_mem;
    if (state->key_len > JSON_KEY_MAX) return;
    uint32_t value;
    switch (json_find(p.payload, p.payload_len, state->key, state->key_len, &value)) {
    case JSON_FOUND:
        spin_add(&state->found, 1);
        spin_add(&state->sum, value);
        break;
    case JSON_MISSING:
        spin_add(&state->missing, 1);
        break;
    case JSON_BROKEN:
        spin_add(&state->broken, 1);
        break;
    }
}
