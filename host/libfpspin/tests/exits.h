/* Calls that end the program, tried in a child process. */
#ifndef EXITS_H
#define EXITS_H
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether the program ends with status 1 within the call. */
#define EXITS(call) exits_(__extension__({ pid_t child_ = fork(); if (child_ == 0) { call; _exit(0); } child_; }))

static inline int exits_(pid_t child) {
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE;
}
#endif
