/* Uses the library as a program in C would; prints what it answers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "phonograph.h"

static void ask(const char *what, void *graph, size_t capacity) {
    struct phonograph_edited edited = {77, 77};
    char message[256];
    memset(message, '#', sizeof message);
    int code = phonograph_reduce_edges(graph, &edited, message, capacity);
    printf("%s: %d, %" PRIu64 " of %" PRIu64 " edges removed", what, code, edited.removed, edited.edges);
    if (capacity > 0) printf(", \"%s\"", message);
    printf("\n");
}

static int give(void *user, uint32_t sample) {
    (void)user;
    (void)sample;
    return 0;
}

int main(void) {
    ask("null", NULL, 256);
    ask("no room", NULL, 0);
    ask("little room", NULL, 10);
    ask("a triangle", (void *)1, 256);
    ask("once more", (void *)1, 256);
    ask("an allocation", (void *)2, 256);
    ask("a refusal", (void *)3, 256);
    printf("nothing to write to: %d\n", phonograph_reduce_edges((void *)1, NULL, NULL, 0));
    struct phonograph_recovered recovered;
    char message[256];
    int code = phonograph_recover((void *)1, 0, NULL, 1, NULL, NULL, NULL, NULL, &recovered, NULL, message, sizeof message);
    phonograph_release(NULL);
    printf("recover nothing: %d, \"%s\"\n", code, message);
    struct phonograph_block blocks[] = {{4096, 256, PHONOGRAPH_FRESH}, {8192, 256, PHONOGRAPH_SCRATCH}};
    code = phonograph_recover((void *)1, 0, blocks, 2, give, NULL, NULL, NULL, NULL, NULL, message, sizeof message);
    printf("recover with scratch: %d, \"%s\"\n", code, message);
    blocks[1].known = 4;
    code = phonograph_recover((void *)1, 0, blocks, 2, give, NULL, NULL, NULL, NULL, NULL, message, sizeof message);
    printf("recover with what is not known: %d, \"%s\"\n", code, message);
    printf("sizes: %zu %zu %zu\n", sizeof(struct phonograph_block), sizeof(struct phonograph_limits), sizeof recovered);
    return 0;
}
