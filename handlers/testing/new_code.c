/* 200 instructions. The word of the first one, 0xabcde2b7, is looked for in the image and its upper 20 bits are changed: that is
 * an image that nobody has seen yet, without a compiler. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    (void)args;
    __asm__ volatile("lui t0, 0xabcde\n.rept 198\naddi t1, t1, 1\n.endr" ::: "t0", "t1");
}
