/* Nothing: what it costs to give a handler its packet and get the HPU back. */
#include <spin.h>

void payload_handler(handler_args_t *args) { (void)args; }
