/* Compiled as C and as C++: the header needs no other one, and structures have the sizes and offsets that the library writes. */
#include <spin_client.h>

#include <assert.h>

#define AT(type, field, offset) static_assert(offsetof(type, field) == offset, #type "." #field)

static_assert(sizeof(spin_capabilities) == 120, "capabilities");
AT(spin_capabilities, scratchpad, 28);
AT(spin_capabilities, contexts, 32);
AT(spin_capabilities, guarantees, 72);
AT(spin_capabilities, version, 80);
AT(spin_capabilities, units, 112);
static_assert(sizeof(spin_event) == 40, "event");
AT(spin_event, kind, 0);
AT(spin_event, flow, 4);
AT(spin_event, stage, 8);
AT(spin_event, cause, 12);
AT(spin_event, pc, 16);
AT(spin_event, address, 20);
AT(spin_event, length, 24);
AT(spin_event, host, 32);
static_assert(sizeof(spin_replayed) == 40, "replayed");
AT(spin_replayed, arrived, 0);
AT(spin_replayed, unmatched, 8);
AT(spin_replayed, too_long, 16);
AT(spin_replayed, too_short, 24);
AT(spin_replayed, sent, 32);

int main(void) {
    return spin_last_error()[0] != '\0';
}
