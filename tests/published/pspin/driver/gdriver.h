/* A generic driver of simulations, as published ones are: at most two contexts, packets from a callback or from nowhere. */
#ifndef GDRIVER_H
#define GDRIVER_H

#include <spin.h>
#include <stdint.h>
#include <stdlib.h>

#define GDRIVER_OK 0
#define GDRIVER_ERR 1
#define GDRIVER_MATCHING_CTX_MAXSIZE 256

/* Fills a packet of at most `max_size` bytes. Returns its size. */
typedef uint32_t (*fill_packet_fun_t)(uint32_t msg, uint32_t pkt, uint8_t *buf, uint32_t max_size, uint32_t *l1_size);
/* Whether packets from `src` belong to a context. */
typedef int (*match_packet_fun_t)(char *src, char *matching_ctx);

int gdriver_init(int argc, char **argv, match_packet_fun_t match, int *ectx_num);
int gdriver_add_ectx(const char *hfile, const char *hh, const char *ph, const char *th, fill_packet_fun_t fill, void *l2_img,
                     size_t l2_img_size, void *matching_ctx, size_t matching_ctx_size);
int gdriver_run(void);
int gdriver_fini(void);

/* FPsPIN's driver has these too. An interactive run (-i) has no packets but those that its callback adds. The callback is called once in
 * each cycle until it returns 1, and never again. */
typedef int (*interactive_cb_t)(void);
void gdriver_set_interactive_cb(interactive_cb_t cb);
int gdriver_is_interactive(void);
/* The contexts with their memory. */
spin_ec_t *gdriver_get_ectx_mems(void);

#endif
