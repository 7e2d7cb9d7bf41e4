/* Runs a payload handler as a Linux RV32 program under qemu-riscv32, without the engine.
 *
 * Standard input has frames, each as a 32-bit length and its bytes. Standard output has the handler's answer to each in the same
 * form, with length 0 for none. The driver page is plain memory here: the harness reads the command words after the handler has
 * returned, so it sees one command per frame.
 *
 * Both copies of the packet end at a page's end, before an absent page. They start behind an absent page if their start is
 * page-aligned. An access beyond a frame therefore ends the program. */
#include <spin.h>

#define SYS_READ 63
#define SYS_WRITE 64
#define SYS_EXIT 93
#define SYS_MMAP2 222
#define PROT_NONE 0
#define PROT_READ_WRITE 3
#define MAP_FIXED_PRIVATE_ANONYMOUS 0x32
#define PAGE 4096u
#define L1 0x10008000u
#define L2 0x1c400000u

static long syscall6(long number, long a, long b, long c, long d, long e, long f) {
    register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c, a3 __asm__("a3") = d,
                  a4 __asm__("a4") = e, a5 __asm__("a5") = f, a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5), "r"(a7) : "memory");
    return a0;
}

static void quit(int code) {
    for (;;) syscall6(SYS_EXIT, code, 0, 0, 0, 0, 0);
}

static void map(uint32_t at, int protection) {
    long got = syscall6(SYS_MMAP2, (long)at, PAGE, protection, MAP_FIXED_PRIVATE_ANONYMOUS, -1, 0);
    if ((uint32_t)got != at) quit(40);
}

/* Returns false at the end of input. */
static bool read_all(void *to, uint32_t length) {
    for (uint8_t *at = to; length > 0;) {
        long got = syscall6(SYS_READ, 0, (long)at, (long)length, 0, 0, 0);
        if (got <= 0) return false;
        at += got;
        length -= (uint32_t)got;
    }
    return true;
}

static void write_all(const void *from, uint32_t length) {
    for (const uint8_t *at = from; length > 0;) {
        long put = syscall6(SYS_WRITE, 1, (long)at, (long)length, 0, 0, 0);
        if (put <= 0) quit(41);
        at += put;
        length -= (uint32_t)put;
    }
}

static void run(task_t *task) {
    handler_args_t args = {.task = task};
    *spin_reg(SPIN_REG_COMMAND_INFO) = 0;
    payload_handler(&args);
    const uint32_t *words = (const uint32_t *)(SPIN_DRIVER_BASE + SPIN_REG_COMMAND_WORDS);
    uint32_t length = 0;
    if (*spin_reg(SPIN_REG_COMMAND_INFO) == SPIN_INFO_SEND) {
        if (words[0] != 0 || words[1] != 0 || words[3] != 0 || words[4] == 0) quit(42);
        length = words[4];
    }
    write_all(&length, sizeof length);
    write_all((const void *)words[2], length);
}

void _start(void) {
    static uint8_t frame[PAGE];
    uint32_t length;
    task_t *task = (task_t *)(SPIN_DRIVER_BASE + SPIN_REG_TASK);
    map(SPIN_DRIVER_BASE & ~(PAGE - 1), PROT_READ_WRITE);
    for (int copy = 0; copy < 2; copy++) {
        uint32_t at = copy ? L2 : L1;
        map(at - PAGE, PROT_NONE);
        map(at, PROT_READ_WRITE);
        map(at + PAGE, PROT_NONE);
    }
    while (read_all(&length, sizeof length)) {
        if (length > PAGE || !read_all(frame, length)) quit(43);
        task->pkt_mem = L1 + PAGE - length;
        task->l2_pkt_mem = L2 + PAGE - length;
        task->pkt_mem_size = length;
        memcpy((void *)task->pkt_mem, frame, length);
        memcpy((void *)task->l2_pkt_mem, frame, length);
        run(task);
    }
    quit(0);
}
