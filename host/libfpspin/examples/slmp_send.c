/* Sends a file by SLMP, in messages of some length, and an empty one at its end: slmp_send ADDRESS FILE LENGTH WINDOW THREADS. */
#include <fpspin/fpspin.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "usage: slmp_send ADDRESS FILE LENGTH WINDOW THREADS\n"), 2;
    in_addr_t server = inet_addr(argv[1]);
    FILE *file = fopen(argv[2], "rb");
    if (!file) return perror(argv[2]), 1;
    size_t length = (size_t)atol(argv[3]), got = 0, all = 0;
    char *message = (char *)malloc(length);
    slmp_sock_t sock;
    if (!message || slmp_socket(&sock, atoi(argv[4]), 0, 0, atoi(argv[5]))) return 1;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int id = 1;; id++) {
        got = fread(message, 1, length, file);
        if (slmp_sendmsg(&sock, server, id, message, got)) return 1;
        all += got;
        if (got == 0) break;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    printf("%zu bytes in %.2f s: %.1f MB/s\n", all, seconds, (double)all / seconds / 1e6);
    free(message);
    fclose(file);
    return slmp_close(&sock);
}
