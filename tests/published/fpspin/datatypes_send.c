/* Sends the messages that datatypes_host expects: datatypes_send ADDRESS MESSAGES BYTES. */
#include <fpspin/fpspin.h>

int main(int argc, char *argv[]) {
    slmp_sock_t sock;
    if (argc != 4) return 2;
    uint32_t messages = (uint32_t)atol(argv[2]), bytes = (uint32_t)atol(argv[3]);
    uint8_t *message = malloc(bytes);
    if (!message || slmp_socket(&sock, 16, 4, 0, 1)) return EXIT_FAILURE;
    for (uint32_t id = 0; id < messages; id++) {
        for (uint32_t at = 0; at < bytes; at++) message[at] = (uint8_t)(at * 7 + id);
        if (slmp_sendmsg(&sock, inet_addr(argv[1]), (int)id, message, bytes)) return EXIT_FAILURE;
    }
    free(message);
    return slmp_close(&sock);
}
