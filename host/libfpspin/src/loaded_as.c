/* Part of the shared library only: ends programs that were linked with libfpspin.so before it had a version. Structures and rules have
 * changed since, so such a program would read beyond a flag or match other packets. It loads this library by the name libfpspin.so,
 * which links new programs to libfpspin.so.2. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void __attribute__((constructor)) check_name(void) {
    Dl_info self;
    if (!dladdr((void *)check_name, &self) || !self.dli_fname) return;
    const char *slash = strrchr(self.dli_fname, '/');
    if (strcmp(slash ? slash + 1 : self.dli_fname, "libfpspin.so") != 0) return;
    fprintf(stderr, "%s: this program was linked with an older libfpspin; its structures have changed: compile and link it again "
                    "(see CHANGELOG.md), or load libfpspin.so.2\n", self.dli_fname);
    _exit(127);
}
