"""A loop that replays a graph, timed: run it with and without `phonograph trace --` to see what tracing costs."""

import sys
import time

import torch

nodes, replays = (int(word) for word in sys.argv[1:3])
a = torch.randn(1 << 12, device="cuda")
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        a.mul_(1.0)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    for _ in range(nodes):
        a.mul_(1.0)
times = []
for _ in range(7):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - begin) / replays * 1e6)
print(f"nodes {nodes}: {sorted(times)[3]:.3f} us a replay (median of 7; {min(times):.3f} to {max(times):.3f})")
