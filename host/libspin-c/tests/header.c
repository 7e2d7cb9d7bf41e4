/* Compiled as C and as C++: the header needs no other one, and structures have the sizes that the library writes. */
#include <spin_client.h>

#include <assert.h>

static_assert(sizeof(spin_capabilities) == 112 && offsetof(spin_capabilities, version) == 80, "capabilities");
static_assert(sizeof(spin_event) == 40 && offsetof(spin_event, host) == 32, "event");
static_assert(sizeof(spin_replayed) == 40 && offsetof(spin_replayed, sent) == 32, "replayed");

int main(void) {
    return spin_last_error()[0] != '\0';
}
