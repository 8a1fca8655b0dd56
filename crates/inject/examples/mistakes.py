"""Eight classic mistakes with CUDA graphs in PyTorch, to be traced and explained.

    phonograph trace -o item.trace -- python3 mistakes.py item
    phonograph explain item.trace

Without a name it lists them. Needs PyTorch with CUDA.
"""

import ctypes
import sys
import threading

import torch

runtime = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])


def warm_up(stream):
    a = torch.randn(64, 64, device="cuda")
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.relu(a @ a).sum()
    torch.cuda.synchronize()
    return a


def item(stream, a):
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
        loss = torch.relu(a @ a).sum()
        if loss.item() > 0:  # mistake: the host waits for recorded work
            loss = loss * 2


def pageable(stream, a):
    host = (ctypes.c_float * a.numel())()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        runtime.cudaMemcpyAsync(ctypes.c_void_p(a.data_ptr()), host, ctypes.c_size_t(4 * a.numel()), 1, ctypes.c_void_p(stream.cuda_stream))  # mistake: pageable memory
        torch.relu(a @ a)
    graph.replay()


def unjoined(stream, a):
    side = torch.cuda.Stream()
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
        b = torch.relu(a)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            c = b * 2  # mistake: nothing waits for this
        torch.relu(b)


def allocation(stream, a):
    def load():
        torch.empty(1 << 26, device="cuda")  # mistake: allocates while another thread captures

    loader = threading.Thread(target=load, name="loader")
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
        torch.relu(a)
        loader.start()
        loader.join()
        torch.relu(a)


def legacy(stream, a):
    handle = ctypes.c_void_p()
    runtime.cudaStreamCreate(ctypes.byref(handle))
    blocking = torch.cuda.ExternalStream(handle.value)
    default = torch.cuda.default_stream()
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=blocking):
        torch.relu(a)
        with torch.cuda.stream(default):
            torch.relu(a)  # mistake: the default stream waits for every blocking stream


def event(stream, a):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.relu(a)
    ready = side.record_event()
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
        torch.cuda.current_stream().wait_event(ready)  # mistake: recorded before the capture
        torch.relu(a)


def printing(stream, a):
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
        b = torch.relu(a @ a)
        print(b)  # mistake: printing copies to the host


def other_stream(stream, a):
    side, graph = torch.cuda.Stream(), ctypes.c_void_p()
    with torch.cuda.stream(stream):
        runtime.cudaStreamBeginCapture(ctypes.c_void_p(stream.cuda_stream), 2)
        torch.relu_(a)
        side.wait_stream(stream)
        code = runtime.cudaStreamEndCapture(ctypes.c_void_p(side.cuda_stream), ctypes.byref(graph))  # mistake: begun on `stream`
        runtime.cudaStreamEndCapture(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(graph))
    if code != 0:
        raise RuntimeError(f"cudaStreamEndCapture answered {code}")


MISTAKES = [item, pageable, unjoined, allocation, legacy, event, printing, other_stream]


def main():
    names = {mistake.__name__: mistake for mistake in MISTAKES}
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        sys.exit("one of: " + " ".join(names))
    stream = torch.cuda.Stream()
    a = warm_up(stream)
    try:
        names[sys.argv[1]](stream, a)
        print("no error")
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}")


main()
