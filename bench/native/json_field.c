#include "native.h"

#include "../handlers/json_field.h"

void json_field(struct job *job) {
    spin_packet p;
    if (job->handler_mem_size < sizeof(json_state) || !parse_udp(job, &p)) return;
    json_state *state = (json_state *)job->handler_mem;
    if (state->key_len > JSON_KEY_MAX) return;
    uint32_t value;
    switch (json_find(p.payload, p.payload_len, state->key, state->key_len, &value)) {
    case JSON_FOUND:
        add(&state->found, 1);
        add(&state->sum, value);
        break;
    case JSON_MISSING:
        add(&state->missing, 1);
        break;
    case JSON_BROKEN:
        add(&state->broken, 1);
        break;
    }
}
