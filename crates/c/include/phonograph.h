/* Makes graphs of the CUDA driver faster. Link with phonograph_c, or load it at run time. */
#ifndef PHONOGRAPH_H
#define PHONOGRAPH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results. */
enum {
    PHONOGRAPH_OK = 0,
    PHONOGRAPH_INVALID = 1,   /* the graph is null */
    PHONOGRAPH_READ_ONLY = 2, /* it allocates, or has conditional nodes */
    PHONOGRAPH_FAILED = 3     /* the driver, or what it says, is in the way */
};

/* What was done to a graph and the graphs inside. */
struct phonograph_edited {
    uint64_t edges;   /* before */
    uint64_t removed; /* are gone */
};

/*
 * Takes out of a CUgraph, in place, every edge that others imply, and out of the child graphs inside. To be called before
 * the graph is instantiated; a cudaGraph_t is the same handle. `edited` and `message` may be null; `message` gets a
 * terminated sentence of up to `capacity` bytes, empty on success.
 */
int phonograph_reduce_edges(void *graph, struct phonograph_edited *edited, char *message, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
