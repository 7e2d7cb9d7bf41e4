/* Regular expressions: . [] [^] \d \w \s ^ $ ( | ) * + ? and their lazy forms, matched with backtracking. */
#ifndef LARGE_REGEX_H
#define LARGE_REGEX_H

#include "heap.h"

enum { GROUPS = 6 };

/* A compiled expression in the heap, or 0. */
ref regex_compile(heap *h, const char *pattern);
/* Searches; `groups` has start and end of the match and of each group. */
bool regex_search(heap *h, ref program, const char *text, uint32_t length, uint32_t groups[2 * GROUPS]);

#endif
