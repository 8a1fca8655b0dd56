"""What recovering gives on networks of torchvision and transformers, batch 1, as captured on one stream.

    cargo build --release -p phonograph-c
    PHONOGRAPH_LIBRARY=target/release/libphonograph_c.so python3 crates/c/examples/recover.py [NETWORK…]

Prints for each network the graph as recovered and, for both orders as PyTorch replays them, microseconds (of a replay that
is waited for, and of one of many in a row) and whether the outputs are equal bit for bit on 100 inputs.
"""

import fcntl
import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import phonograph


class Experts(torch.nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.experts = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Linear(width, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, width)
            )
            for _ in range(8)
        )

    def forward(self, x):
        return torch.stack([expert(x) for expert in self.experts]).sum(0)


def vision(name, size=224):
    import torchvision

    extra = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    model = getattr(torchvision.models, name)(weights=None, **extra)
    return model, lambda generator: torch.randn(1, 3, size, size, device="cuda", generator=generator)


def language(name):
    import transformers

    tokens = lambda generator: torch.randint(0, 1000, (1, 64), device="cuda", generator=generator)
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=4, vocab_size=1000, use_cache=False)
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            num_hidden_layers=4, hidden_size=512, intermediate_size=1408, num_attention_heads=8, vocab_size=1000, use_cache=False
        )
        model = transformers.LlamaForCausalLM(config)
    return model, tokens


def experts(hidden=512, rows=1, width=512):
    return Experts(hidden, width), lambda generator: torch.randn(rows, width, device="cuda", generator=generator)


def biased(name):
    model, inputs = vision(name)
    for key, values in model.named_parameters():
        if key.endswith("bias"):
            torch.nn.init.normal_(values, std=0.1)
    return model, inputs


# `experts-1024x32x256` is experts with 1024 hidden numbers, a batch of 32 rows, and inputs and outputs of 256. Biases of zero change nothing, which hides what
# adds them; `squeezenet1_0-biased` has others, as a trained one has.
NETWORKS = {
    "experts": experts,
    "googlenet": lambda: vision("googlenet"),
    "inception_v3": lambda: vision("inception_v3", 299),
    "resnet50": lambda: vision("resnet50"),
    "shufflenet_v2_x1_0": lambda: vision("shufflenet_v2_x1_0"),
    "squeezenet1_0": lambda: vision("squeezenet1_0"),
    "squeezenet1_0-biased": lambda: biased("squeezenet1_0"),
    "mobilenet_v3_large": lambda: vision("mobilenet_v3_large"),
    "gpt2": lambda: language("gpt2"),
    "llama": lambda: language("llama"),
}


def network(name):
    if name in NETWORKS:
        return NETWORKS[name]()
    kind, _, sizes = name.partition("-")
    sizes = sizes.split("x")
    if kind != "experts" or len(sizes) > 3 or not all(size.isdecimal() and int(size) > 0 for size in sizes):
        sys.exit(f"no network {name!r}; there are {', '.join(NETWORKS)} and experts-HIDDENxROWSxWIDTH")
    return experts(*map(int, sizes))


def output(result):
    return result if isinstance(result, torch.Tensor) else result.logits


def captured(model, x):
    stream = torch.cuda.Stream()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with phonograph.capture(graph, stream=stream):
            y = output(model(x))
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


def back_to_back_us(graph, replays=100):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(replays):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / replays * 1e6


def main(name):
    torch.manual_seed(0)
    model, inputs = network(name)
    model = model.cuda().eval()
    generator = torch.Generator("cuda")

    def give(k):
        generator.manual_seed(1000 + k)
        x.copy_(inputs(generator))

    x = inputs(generator.manual_seed(0))
    before, y_before = captured(model, x)
    after, y_after = captured(model, x)
    # One network at a time, since it is timed.
    with open("/tmp/phonograph-recover.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start = time.perf_counter()
        options = {"zeros": "ZEROS" in os.environ, "scratch": "SHARED" not in os.environ, "progress": int(os.environ.get("PROGRESS", 0)), "save": os.environ.get("SAVE")}
        found = phonograph.recover(after, give, samples=int(os.environ.get("SAMPLES", 0)), seconds=float(os.environ.get("LIMIT", 60)), **options)
        seconds = time.perf_counter() - start
        before.instantiate()
        after.instantiate()
        equal = 0
        for k in range(100):
            give(10_000 + k)
            before.replay()
            after.replay()
            torch.cuda.synchronize()
            equal += torch.equal(y_before, y_after)
        times = [(replay_us(before), replay_us(after), back_to_back_us(before), back_to_back_us(after)) for _ in range(3)]
        old, new, old_many, new_many = (min(column) for column in zip(*times))
    print(f"{name}: {found}; {seconds:.1f} s")
    print(
        f"{name}: PyTorch replays {old:.0f} -> {new:.0f} us = {new / old:.3f}, back to back {old_many:.0f} -> {new_many:.0f} us = "
        f"{new_many / old_many:.3f}; equal on {equal} of 100 inputs"
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or NETWORKS:
        main(name)
