/* The few functions of the driver that the library calls itself. */
#include <stdio.h>

unsigned cuDriverGetVersion(int *version) { *version = 13000; return 0; }

unsigned cuGraphDebugDotPrint(void *graph, const char *path, unsigned flags) {
    FILE *file = fopen(path, "w");
    if (!file) return 1;
    fprintf(file, "digraph dot {\nsubgraph cluster_1 {\nlabel=\"graph_1\" graph[style=\"dashed\"];\n\"graph_1_node_0\"[style=\"solid\" shape=\"rectangle\" label=\"0\nEMPTY\n\"];\n}\n}\n");
    return (unsigned)fclose(file);
}
