/* Verdicts: the meaning of a handler's return value in a context installed with --verdicts.
 *
 * Handlers return a spin_verdict_t in a file that defines SPIN_VERDICTS before it includes spin.h, and nothing in other files.
 * The numbers are those of abi/src/verdict.rs; a test of the package spin-handlers compares them.
 */
#ifndef SPIN_VERDICT_H
#define SPIN_VERDICT_H

/* A header handler's verdict applies to the whole message. A payload handler's applies to its packet, and a drop also to all
 * following packets. A completion handler's only says whether the message stays open.
 *
 * A message stays open after its last packet if one of its handlers returned a pending verdict. Packets that arrive later under
 * its key still belong to it. Payload handlers run for them without a header handler, and the completion handler runs again after
 * the next last packet. The message then ends unless a handler returned a pending verdict again. An open message holds its queue;
 * the context's message timeout also ends it. */
typedef enum spin_verdict {
    SPIN_VERDICT_SUCCESS = 0,              /* done; from a header handler: continue with the payload handlers */
    SPIN_VERDICT_PASS = 1,                 /* pass to the kernel, with what handlers wrote to it in L2 */
    SPIN_VERDICT_PROCEED = SPIN_VERDICT_PASS, /* former name; sPIN's return code PROCEED leaves the packet as it arrived */
    SPIN_VERDICT_PROCESS_DATA = 2,         /* run the payload handlers */
    SPIN_VERDICT_PROCESS_DATA_PENDING = 3, /* run the payload handlers; the message stays open after its last packet */
    SPIN_VERDICT_DROP = 4,                 /* discard the rest of the message; no further handler runs */
    SPIN_VERDICT_DROP_PENDING = 5,         /* discard the rest of the message; the message stays open */
    SPIN_VERDICT_SUCCESS_PENDING = 6,      /* done; the message stays open */
} spin_verdict_t;

/* Return type of the handlers of this file. */
#ifdef SPIN_VERDICTS
typedef spin_verdict_t spin_result_t;
/* The symbol makes spind install the handlers only with --verdicts (engine/src/control/install/abi_check.rs); with
 * SPIN_VERDICTS_OPTIONAL also without. It is weak because several files may define it. */
#ifdef SPIN_VERDICTS_OPTIONAL
__asm__(".weak __spin_verdicts\n.set __spin_verdicts, 2");
#else
__asm__(".weak __spin_verdicts\n.set __spin_verdicts, 1");
#endif
#else
typedef void spin_result_t;
#endif

#endif
