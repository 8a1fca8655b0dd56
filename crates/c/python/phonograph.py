"""Makes graphs that PyTorch captured faster, before PyTorch instantiates them.

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with phonograph.capture(graph):
        y = model(x)
    print(phonograph.recover(graph, lambda k: x.copy_(inputs(k))))
    graph.instantiate()

The library is `libphonograph_c.so`, beside this file, or where the variable PHONOGRAPH_LIBRARY says.
"""

import contextlib
import ctypes
import os

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Error(RuntimeError):
    """What the library says; the graph is as it was."""


class _Edited(ctypes.Structure):
    _fields_ = [("edges", ctypes.c_uint64), ("removed", ctypes.c_uint64)]


class _Block(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("known", ctypes.c_uint64)]


_SCRATCH, _FRESH = 1, 2


class _Limits(ctypes.Structure):
    _fields_ = [
        ("samples", ctypes.c_uint32),
        ("inputs", ctypes.c_uint32),
        ("zeros", ctypes.c_uint32),
        ("progress", ctypes.c_uint32),
        ("seconds", ctypes.c_double),
        ("saved_bytes", ctypes.c_uint64),
        ("workspace_bytes", ctypes.c_uint64),
        ("excluded", ctypes.POINTER(ctypes.c_uint32)),
        ("excluded_count", ctypes.c_size_t),
    ]


class Recovered(ctypes.Structure):
    """What `recover` found and did."""

    _fields_ = [
        ("nodes", ctypes.c_uint64),
        ("captured_depth", ctypes.c_uint64),
        ("recovered_depth", ctypes.c_uint64),
        ("runs", ctypes.c_uint64),
        ("opaque", ctypes.c_uint64),
        ("missed", ctypes.c_uint64),
        ("captured_us", ctypes.c_double),
        ("recovered_us", ctypes.c_double),
        ("workspace_bytes", ctypes.c_uint64),
        ("workspace_users", ctypes.c_uint64),
        ("inputs", ctypes.c_uint32),
        ("cap", ctypes.c_uint32),
        ("ended", ctypes.c_uint32),
        ("unexplained", ctypes.c_uint32),
        ("added", ctypes.c_uint32),
    ]

    def __str__(self):
        order = {0: "kept as captured", 2**32 - 1: "no cap"}.get(self.cap, f"at most {self.cap} side by side")
        if self.ended != 0:
            why = ("verified", "`seconds` were over", "copies would take more than `saved_bytes`", f"the results of node {self.unexplained} differ in another order")
            return f"{self.nodes} nodes, kept as captured: {why[self.ended]} ({self.runs} trials)"
        return (
            f"{self.nodes} nodes, longest path {self.captured_depth} -> {self.recovered_depth} ({self.opaque} opaque, "
            f"{self.missed} orders found by verification, {self.workspace_users} runs with scratch of their own, "
            f"{self.workspace_bytes >> 10} KiB, {self.runs} trials); {order}, {self.added} empty kernels added: "
            f"{self.captured_us:.0f} -> {self.recovered_us:.0f} us, equal on {self.inputs} inputs"
        )


_GIVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32)
_loaded = None


def _library():
    global _loaded
    if _loaded is None:
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libphonograph_c.so")
        path = os.environ.get("PHONOGRAPH_LIBRARY", beside)
        try:
            _loaded = ctypes.CDLL(path)
        except OSError as error:
            raise Error(f"{error}; `cargo build --release -p phonograph-c` makes it, PHONOGRAPH_LIBRARY says where it is") from None
        pointer = ctypes.c_void_p
        _loaded.phonograph_reduce_edges.argtypes = [pointer, pointer, ctypes.c_char_p, ctypes.c_size_t]
        _loaded.phonograph_recover.argtypes = [
            pointer, ctypes.c_uint32, pointer, ctypes.c_size_t, _GIVE, pointer, pointer, ctypes.c_char_p, pointer, pointer,
            ctypes.c_char_p, ctypes.c_size_t,
        ]
        _loaded.phonograph_release.argtypes = [pointer]
        _loaded.phonograph_release.restype = None
    return _loaded


def _check(code, message):
    if code != 0:
        raise Error(message.value.decode(errors="replace"))


class _Keep(TorchDispatchMode):
    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.kept.append(result)
        return result


@contextlib.contextmanager
def capture(graph, **options):
    """`torch.cuda.graph(graph, …)` that keeps every intermediate until the graph is gone.

    Memory that the allocator hands out twice within a capture orders its users for good. The workspaces of libraries are
    the exception: they are the graph's own, and free afterwards, which tells `recover` that nobody looks into them.
    """
    graph.phonograph_kept = []
    # Memory of a pool that others fill, too.
    graph.phonograph_filled = {address for address, _, pool, used, _ in _allocated() if used and pool == options.get("pool")}
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.graph(graph, **options), _Keep(graph.phonograph_kept):
        yield
    torch._C._cuda_clearCublasWorkspaces()


def reduce_edges(graph):
    """Takes out the edges that others imply: (edges, removed)."""
    edited, message = _Edited(), ctypes.create_string_buffer(1024)
    _check(_library().phonograph_reduce_edges(graph.raw_cuda_graph(), ctypes.byref(edited), message, 1024), message)
    return edited.edges, edited.removed


class _Workspaces:
    """Scratch memory that a graph uses."""

    def __init__(self, handle):
        self.handle, self.release = handle, _library().phonograph_release

    def __del__(self):
        self.release(self.handle)


def _allocated():
    """The allocator's blocks: address, bytes, pool, whether it is given out, device."""
    for segment in torch.cuda.memory_snapshot():
        address, pool = segment["address"], tuple(segment["segment_pool_id"])
        for block in segment["blocks"]:
            yield address, block["size"], pool, block["state"] == "active_allocated", segment["device"]
            address += block["size"]


def _blocks(graph, device, scratch, fresh):
    """What the allocator has given out, and what is free now in the graph's pool: scratch memory of its libraries.

    What was taken from the pool during the capture nobody has written, since nothing ran.
    """
    filled = getattr(graph, "phonograph_filled", None)
    blocks = []
    for address, size, pool, used, place in _allocated():
        own = pool == graph.pool()
        if place == device and (used or own):
            is_fresh = fresh and own and filled is not None and address not in filled
            blocks.append(_Block(address, size, (_SCRATCH if scratch and not used else 0) | (_FRESH if is_fresh else 0)))
    return (_Block * len(blocks))(*blocks)


def recover(
    graph, give, *, samples=0, inputs=0, zeros=False, scratch=False, fresh=True, seconds=0.0, saved_bytes=0, workspace_bytes=0, exclude=(),
    save=None, progress=False
):
    """Puts a captured graph into the fastest order that what its kernels really read and write allows.

    `give(k)` copies input number k into the tensors that the graph reads; the same number must be the same input. Kernels
    are run one at a time on bytes of several inputs to see what they touch; `zeros` allows to put zeros where none were,
    which tells more apart, and faults a kernel that takes one for a pointer. With `scratch`, kernels that only share
    memory which is free after the capture may get copies of it, `workspace_bytes` at most; it may be zeroed. `fresh` fills
    what the capture took from its pool before anything runs, which shows who writes zeros there: not if the graph has run
    already, or something outside has written there for it to read. A kernel that
    waits for what it finds in memory may wait for ever on such bytes, and takes the context with it; the error gives its
    number. Nodes in `exclude` keep their place and are run on nothing but what captured order gives them. What is found is
    verified bit for bit on `inputs` fresh inputs, and written to the file `save`, which `phonograph show` draws. The graph
    is as it was if nothing is faster, or after an error.
    """
    device = torch.cuda.current_device()
    failure = []

    def call(_, sample):
        try:
            give(sample)
            torch.cuda.synchronize()
            return 0
        except BaseException as error:  # It must not unwind through C.
            failure.append(error)
            return 1

    torch.cuda.synchronize()
    blocks = _blocks(graph, device, scratch, fresh)
    excluded = (ctypes.c_uint32 * len(exclude))(*exclude)
    limits = _Limits(samples, inputs, zeros, progress, seconds, saved_bytes, workspace_bytes, excluded, len(exclude))
    recovered, message = Recovered(), ctypes.create_string_buffer(4096)
    workspaces = ctypes.c_void_p()
    code = _library().phonograph_recover(
        graph.raw_cuda_graph(), device, blocks, len(blocks), _GIVE(call), None, ctypes.byref(limits),
        os.fsencode(save) if save else None, ctypes.byref(recovered), ctypes.byref(workspaces), message, 4096,
    )
    if workspaces:
        graph.phonograph_workspaces = _Workspaces(workspaces)
    if failure:
        raise failure[0]
    _check(code, message)
    return recovered
