/* Attempts to change a word, called by themselves: see reservation.rs. */
#include <handler.h>

__handler__ int32_t attempt(volatile uint32_t *word, uint32_t old, uint32_t new) { return compare_and_swap(word, old, new); }

__handler__ uint32_t conditional(volatile uint32_t *word, uint32_t old, uint32_t new) {
    (void)old;
    load_reserved(word);
    return store_conditional(word, new);
}

__handler__ void reservation_ph(handler_args_t *args) { (void)args; }

void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem) {
    *hh = NULL;
    *ph = reservation_ph;
    *th = NULL;
    *handler_mem = NULL;
}
