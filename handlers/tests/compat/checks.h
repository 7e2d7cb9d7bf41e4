/* Checks of a handler, for its test: {number of checks, number of failures, lines of those that failed}. */
#ifndef CHECKS_H
#define CHECKS_H

#include <stdbool.h>
#include <stdint.h>

#define LINES 30

static struct results {
    uint32_t checks, failures, lines[LINES];
} results;

static void check(bool right, uint32_t line) {
    results.checks++;
    if (!right && results.failures < LINES) results.lines[results.failures++] = line;
}
#define CHECK(condition) check(condition, __LINE__)

#endif
