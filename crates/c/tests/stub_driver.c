/*
 * The functions of the driver that the library needs to edit three graphs: 1 is a triangle of empty nodes, 2 has a node
 * that allocates and cannot be dumped, 3 a triangle that may not be edited.
 */
#include <stddef.h>
#include <string.h>

enum { REFUSED = 1, KIND_EMPTY = 5, KIND_ALLOCATION = 10 };

struct data { unsigned char from_port, to_port, type, reserved[5]; };

static char nodes[4][3];
/* The last edge is the one that the others imply. */
static int from[] = {0, 1, 0}, to[] = {1, 2, 2};
static size_t edges = 3;

unsigned cuDriverGetVersion(int *version) { *version = 13000; return 0; }
unsigned cuInit(unsigned flags) { (void)flags; return 0; }
unsigned cuDeviceGetCount(int *count) { *count = 1; return 0; }
unsigned cuGetErrorName(unsigned code, const char **name) { *name = code ? "CUDA_ERROR_STUB" : "CUDA_SUCCESS"; return 0; }
unsigned cuGetErrorString(unsigned code, const char **text) { *text = code ? "the stub refuses" : "fine"; return 0; }

unsigned cuGraphGetNodes(size_t graph, void **out, size_t *count) {
    *count = 3;
    for (int at = 0; out && at < 3; at++) out[at] = &nodes[graph][at];
    return 0;
}

unsigned cuGraphNodeGetType(void *node, unsigned *kind) {
    *kind = node == &nodes[2][1] ? KIND_ALLOCATION : KIND_EMPTY;
    return 0;
}

unsigned cuGraphGetEdges_v2(size_t graph, void **a, void **b, struct data *data, size_t *count) {
    size_t have = graph == 1 ? edges : 3;
    *count = have;
    for (size_t at = 0; a && at < have; at++) {
        a[at] = &nodes[graph][from[at]];
        b[at] = &nodes[graph][to[at]];
        memset(&data[at], 0, sizeof *data);
    }
    return 0;
}

unsigned cuGraphRemoveDependencies_v2(size_t graph, void **a, void **b, struct data *data, size_t count) {
    if (graph == 3 || count != 1 || a[0] != &nodes[graph][0] || b[0] != &nodes[graph][2] || data->type) return REFUSED;
    edges = 2;
    return 0;
}

unsigned cuGraphDebugDotPrint(size_t graph, const char *path, unsigned flags) {
    (void)graph, (void)path, (void)flags;
    return REFUSED;
}
