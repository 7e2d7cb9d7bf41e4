/* Verdicts: what a handler's return value decides, in a context that asks for it.
 *
 * A file that defines SPIN_VERDICTS before it includes spin.h has handlers that return a spin_verdict_t; in others they return
 * nothing. The numbers are those of abi/src/verdict.rs; a test of the package spin-handlers compares them.
 */
#ifndef SPIN_VERDICT_H
#define SPIN_VERDICT_H

/* A header handler decides on the whole message; a payload handler on its packet, and with a drop on all that follow; a completion
 * handler only on whether the message stays open.
 *
 * A message stays open if any of its handlers says so: it does not end with its last packet. What arrives under its key later is
 * still part of it: payload handlers run without a header handler before them, and the completion handler again behind another last
 * packet. Then it ends, unless a handler has said so once more. It holds its queue meanwhile; the context's message
 * timeout ends it, too. */
typedef enum spin_verdict {
    SPIN_VERDICT_SUCCESS = 0,              /* dealt with; of a header handler: go on as usual */
    SPIN_VERDICT_PROCEED = 1,              /* the kernel gets it unchanged, as if there were no handlers */
    SPIN_VERDICT_PROCESS_DATA = 2,         /* run the payload handlers */
    SPIN_VERDICT_PROCESS_DATA_PENDING = 3, /* the same, and the message stays open after its last packet */
    SPIN_VERDICT_DROP = 4,                 /* discard the rest of the message; no further handler runs */
    SPIN_VERDICT_DROP_PENDING = 5,         /* the same, and the message stays open */
    SPIN_VERDICT_SUCCESS_PENDING = 6,      /* dealt with, and the message stays open */
} spin_verdict_t;

/* What the handlers of this file return. */
#ifdef SPIN_VERDICTS
typedef spin_verdict_t spin_result_t;
/* So that spind installs them with --verdicts alone (engine/src/install/built.rs); SPIN_VERDICTS_OPTIONAL: or without, too. Weak: several
 * files may say so. */
#ifdef SPIN_VERDICTS_OPTIONAL
__asm__(".weak __spin_verdicts\n.set __spin_verdicts, 2");
#else
__asm__(".weak __spin_verdicts\n.set __spin_verdicts, 1");
#endif
#else
typedef void spin_result_t;
#endif

#endif
