/* Header, payload and completion handlers that do nothing: measures the cost of running all three in order. */
#include <spin.h>

void header_handler(handler_args_t *args) { (void)args; }
void payload_handler(handler_args_t *args) { (void)args; }
void completion_handler(handler_args_t *args) { (void)args; }
