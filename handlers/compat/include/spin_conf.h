/* The machine that an image is for: SPIN_ABI_PSPIN (4 clusters of 8 HPUs) or SPIN_ABI_FPSPIN (2 of 8). */
#ifndef SPIN_CONF_H
#define SPIN_CONF_H

#ifdef SPIN_H
#error "handler.h and spin.h describe the same things differently: include one of them"
#endif

#if defined(SPIN_ABI_PSPIN) && defined(SPIN_ABI_FPSPIN)
#error "SPIN_ABI_PSPIN and SPIN_ABI_FPSPIN are both defined: an image is for one machine"
#elif defined(SPIN_ABI_PSPIN)
#define NB_CLUSTERS 4
#elif defined(SPIN_ABI_FPSPIN)
#define NB_CLUSTERS 2
#else
#error "define SPIN_ABI_PSPIN or SPIN_ABI_FPSPIN, as spin-cc --abi pspin and --abi fpspin do"
#endif

/* HPUs of a cluster, and of the machine. */
#define NB_CORES 8
#define NUM_CLUSTER_HPUS NB_CORES
#define CORE_COUNT (NB_CLUSTERS * NB_CORES)

/* Bytes of a packet that handlers may count on being given: longer ones are up to the context. */
#ifndef PKT_SIZE
#define PKT_SIZE 2048
#endif

#endif
