/* Does nothing: measures the cost of giving a handler its packet and getting the HPU back. */
#include <spin.h>

void payload_handler(handler_args_t *args) { (void)args; }
