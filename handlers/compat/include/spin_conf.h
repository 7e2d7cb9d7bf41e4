/* The machine that an image is for: SPIN_ABI_PSPIN (4 clusters of 8 HPUs) or SPIN_ABI_FPSPIN (2 of 8). */
#ifndef SPIN_CONF_H
#define SPIN_CONF_H

#ifdef SPIN_H
#error "handler.h and spin.h describe the same things differently: include one of them"
#endif

#if defined(SPIN_ABI_PSPIN) && defined(SPIN_ABI_FPSPIN)
#error "SPIN_ABI_PSPIN and SPIN_ABI_FPSPIN are both defined: an image is for one machine"
#elif defined(SPIN_ABI_PSPIN)
#define SPIN_MACHINE_CLUSTERS 4
#elif defined(SPIN_ABI_FPSPIN)
#define SPIN_MACHINE_CLUSTERS 2
#elif !defined(__riscv)
/* A driver of the simulation, which the host's compiler builds. */
#define SPIN_ABI_PSPIN
#define SPIN_MACHINE_CLUSTERS 4
#else
#error "define SPIN_ABI_PSPIN or SPIN_ABI_FPSPIN, as spin-cc --abi pspin and --abi fpspin do"
#endif

/* A program may define each of these before. HPUs of a cluster, clusters, HPUs of the machine. */
#ifndef NB_CORES
#define NB_CORES 8
#endif
#ifndef NB_CLUSTERS
#define NB_CLUSTERS SPIN_MACHINE_CLUSTERS
#endif
#ifndef CORE_COUNT
#define CORE_COUNT (NB_CLUSTERS * NB_CORES)
#endif
#ifndef NUM_CLUSTER_HPUS
#define NUM_CLUSTER_HPUS NB_CORES
#endif
/* Bytes of a packet, and packets of a queue, that programs make their tables for. The machine has no such limits. */
#ifndef PKT_SIZE
#define PKT_SIZE 1024
#endif
#ifndef PacketQueueLength
#define PacketQueueLength 16
#endif

#endif
