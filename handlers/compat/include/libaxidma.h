/* The cluster's DMA engine: its functions are in spin_dma.h. */
#ifndef SPIN_LIBAXIDMA_H
#define SPIN_LIBAXIDMA_H

#include "spin_dma.h"

#endif
