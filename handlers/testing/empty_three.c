/* Header, payload and completion that do nothing: what it costs to run all three in their order. */
#include <spin.h>

void header_handler(handler_args_t *args) { (void)args; }
void payload_handler(handler_args_t *args) { (void)args; }
void completion_handler(handler_args_t *args) { (void)args; }
