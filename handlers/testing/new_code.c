/* 200 instructions. Tests find the word of the first one, 0xabcde2b7, in the image and change its upper 20 bits: that makes an image
 * not seen before, without a compiler. */
#include <spin.h>

void payload_handler(handler_args_t *args) {
    (void)args;
    __asm__ volatile("lui t0, 0xabcde\n.rept 198\naddi t1, t1, 1\n.endr" ::: "t0", "t1");
}
