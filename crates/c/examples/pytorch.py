"""Makes a graph that PyTorch captured faster, before PyTorch instantiates it.

    cargo build --release -p phonograph-c
    python3 crates/c/examples/pytorch.py target/release/libphonograph_c.so

The graph captured here is what frameworks make whose streams wait for more than they need: the work of several branches is
handed from stream to stream, and every step waits for the last eight. Outputs are compared bit for bit.
"""

import ctypes
import sys
import time

import torch


def capture(x, w, steps, behind):
    """A graph in which every step also waits for the `behind` steps before it."""
    streams = [torch.cuda.Stream() for _ in range(behind)]
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        y, events = x, []
        for step in range(steps):
            stream = streams[step % behind]
            stream.wait_stream(main)
            for event in events[-behind:]:
                stream.wait_event(event)
            with torch.cuda.stream(stream):
                y = torch.relu(y + w)
                event = torch.cuda.Event()
                event.record()
            events.append(event)
        for stream in streams:
            main.wait_stream(stream)
    return graph, y


def replay_us(graph, rounds=100):
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[rounds // 2] * 1e6


def main():
    torch.manual_seed(0)
    x, w = torch.randn(1024, device="cuda"), torch.randn(1024, device="cuda")
    torch.relu(x + w)  # Loads the kernels, which a capture must not.
    captured, y_captured = capture(x, w, 500, 8)
    reduced, y_reduced = capture(x, w, 500, 8)

    # All that there is to do:
    lib = ctypes.CDLL(sys.argv[1])
    message = ctypes.create_string_buffer(1024)
    assert lib.phonograph_reduce_edges(ctypes.c_void_p(reduced.raw_cuda_graph()), None, message, 1024) == 0, message.value

    captured.instantiate()
    reduced.instantiate()
    for _ in range(10):
        x.copy_(torch.randn_like(x))
        captured.replay()
        reduced.replay()
        torch.cuda.synchronize()
        assert torch.equal(y_captured, y_reduced)
    before, after = replay_us(captured), replay_us(reduced)
    print(f"outputs are equal; a replay takes {before:.0f} µs as captured, {after:.0f} µs reduced: {after / before:.3f} ×")


if __name__ == "__main__":
    main()
