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
    PHONOGRAPH_INVALID = 1,   /* an argument is null that may not be */
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

/* A piece of device memory. Address and bytes are multiples of 4. */
struct phonograph_block {
    uint64_t address;
    uint64_t bytes;
    uint64_t known; /* a sum of these */
};
enum {
    PHONOGRAPH_SCRATCH = 1, /* nobody looks at it after a replay; it may be zeroed, and nodes may get copies of their own */
    PHONOGRAPH_FRESH = 2    /* nobody has written it yet, so that nothing depends on it; it may be filled with anything */
};

/* How far phonograph_recover goes; a zero stands for what is said in brackets. */
struct phonograph_limits {
    uint32_t samples;     /* inputs on which nodes are observed, at least 2 (3) */
    uint32_t inputs;      /* inputs on which every order is verified (20) */
    uint32_t zeros;       /* 1: zeros may be put into memory where none were seen; a kernel may take one for a pointer */
    uint32_t progress;    /* what is being done is written to the standard error: 1: every second, 2: every step */
    double seconds;       /* after which the observation stops and the graph stays as it is (120) */
    uint64_t saved_bytes; /* of device memory for copies (8 GiB) */
    uint64_t workspace_bytes; /* of scratch memory that the graph may get for good (1 GiB) */
    const uint32_t *excluded; /* nodes, by number in the driver's list, that keep their place and are run on nothing unseen */
    size_t excluded_count;
};

/* What came of it. */
struct phonograph_recovered {
    uint64_t nodes;
    uint64_t captured_depth;  /* nodes on the longest path as captured */
    uint64_t recovered_depth; /* and on that which the nodes' effects ask for */
    uint64_t runs;            /* of single nodes */
    uint64_t opaque;          /* nodes that keep their place among all others */
    uint64_t missed;          /* orders that verification found missing */
    double captured_us;       /* a replay as captured */
    double recovered_us;      /* a replay of the graph as it is now */
    uint64_t workspace_bytes; /* of scratch memory that the graph has got */
    uint64_t workspace_users; /* runs of nodes that use it */
    uint32_t inputs;          /* on which the bytes were the same */
    uint32_t cap;             /* nodes side by side: 0 for the captured order, 4294967295 for no cap */
    uint32_t ended;           /* 0: verified. Else as captured: 1: `seconds` were over, 2: `saved_bytes` were not enough, 3: */
    uint32_t unexplained;     /* the results of this node, in captured order, differ in another order */
    uint32_t added;           /* kernels that do nothing: before nodes that come after nothing, behind those nothing comes after */
};

/*
 * Finds what the nodes of a CUgraph, captured on one stream, read and write, by running them one at a time and watching the
 * blocks, and puts the graph into the fastest order that this allows and that gives the same bytes on fresh inputs. It stays as
 * it is if none is faster. Memory is left as it was found. To be called before the graph is instantiated, with nothing else
 * running on its memory. The blocks hold all that a node may write and another may touch, and do not overlap. `give(user, k)`
 * writes input number k where the graph expects its inputs, waits until it is there and gives 0; the same number is the same
 * input. `save` is null or a file to write: the graph with what each node reads and writes, as `phonograph show` draws it. `limits`, `recovered` and `message` may be null, and `workspaces` if no block is scratch: it gets a handle of the
 * scratch memory that the graph uses afterwards, or null.
 */
int phonograph_recover(void *graph, uint32_t device, const struct phonograph_block *blocks, size_t count,
                       int (*give)(void *user, uint32_t sample), void *user, const struct phonograph_limits *limits, const char *save,
                       struct phonograph_recovered *recovered, void **workspaces, char *message, size_t capacity);

/* Gives that memory back, once the graph and all that was instantiated of it are gone. */
void phonograph_release(void *workspaces);

#ifdef __cplusplus
}
#endif

#endif
