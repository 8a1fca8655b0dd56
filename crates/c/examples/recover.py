"""What recovering gives on networks of torchvision and transformers, batch 1, as captured on one stream.

    cargo build --release -p phonograph-c
    PHONOGRAPH_LIBRARY=target/release/libphonograph_c.so python3 crates/c/examples/recover.py [NETWORK…]

Prints for each network the graph as recovered and, for both orders as PyTorch replays them, microseconds (of a replay that
is waited for, and of one of many in a row) and whether the outputs are equal bit for bit on 100 inputs.
"""

import contextlib
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


def experts(hidden=512, rows=1, width=512):
    return Experts(hidden, width), lambda generator: torch.randn(rows, width, device="cuda", generator=generator)


def vision(name):
    import torchvision

    extra = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    size = 299 if name == "inception_v3" else 224
    model = getattr(torchvision.models, name)(weights=None, **extra)
    return model, lambda generator: torch.randn(1, 3, size, size, device="cuda", generator=generator)


# Model, configuration and what that says, in transformers.
SMALL = {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "vocab_size": 1000, "use_cache": False}
LANGUAGE = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 4, "vocab_size": 1000, "use_cache": False}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**SMALL, "intermediate_size": 1408}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**SMALL, "intermediate_size": 1408, "num_key_value_heads": 2}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**SMALL, "intermediate_size": 2048}),
    "bert": ("BertModel", "BertConfig", {"num_hidden_layers": 4, "vocab_size": 1000}),
    "t5": ("T5EncoderModel", "T5Config", {"num_layers": 3, "vocab_size": 1000}),
    "mamba": ("MambaForCausalLM", "MambaConfig", {"num_hidden_layers": 2, "hidden_size": 256, "vocab_size": 1000, "use_cache": False}),
}


def language(name):
    import transformers

    model, config, values = LANGUAGE[name]
    model = getattr(transformers, model)(getattr(transformers, config)(**values))
    return model, lambda generator: torch.randint(0, 1000, (1, 64), device="cuda", generator=generator)


# What is recovered if nothing is named.
NETWORKS = (
    "experts", "googlenet", "inception_v3", "resnet50", "shufflenet_v2_x1_0", "squeezenet1_0", "squeezenet1_0-biased",
    "mobilenet_v3_large", "gpt2", "llama",
)


def network(name):
    """`experts`, one of LANGUAGE or a classifier of torchvision, and behind dashes what is different about it.

    `experts-1024x32x256` has 1024 hidden numbers, a batch of 32 rows, and inputs and outputs of 256; `float16` and `bfloat16` are
    types of all numbers. Biases of zero change nothing, which hides what adds them: with `biased` they are others, as
    those of trained networks are.
    """
    kind, *options = name.split("-")
    if kind == "experts":
        sizes = options.pop(0).split("x") if options and options[0][:1].isdecimal() else []
        if len(sizes) > 3 or not all(size.isdecimal() and int(size) > 0 for size in sizes):
            sys.exit(f"no network {name!r}: the sizes of experts are HIDDENxROWSxWIDTH")
        model, inputs = experts(*map(int, sizes))
    elif kind in LANGUAGE:
        model, inputs = language(kind)
    else:
        import torchvision

        if kind not in torchvision.models.list_models(module=torchvision.models):
            sys.exit(f"no network {name!r}; there are experts, {', '.join(LANGUAGE)} and the classifiers of torchvision")
        model, inputs = vision(kind)
    for option in options:
        if option == "biased":
            for key, values in model.named_parameters():
                if key.endswith("bias"):
                    torch.nn.init.normal_(values, std=0.1)
        elif option in ("float16", "bfloat16"):
            model, inputs = model.to(getattr(torch, option)), converted(inputs, getattr(torch, option))
        else:
            sys.exit(f"no network {name!r}: behind a dash are `biased`, `float16`, `bfloat16` or the sizes of experts")
    return model, inputs


def converted(inputs, kind):
    def convert(generator):
        x = inputs(generator)
        return x.to(kind) if x.is_floating_point() else x  # Tokens stay whole numbers.

    return convert


def output(result):
    if isinstance(result, torch.Tensor):
        return result
    return result.logits if "logits" in result else result.last_hidden_state


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


def equal_replays(before, after, give, same):
    """After how many of 100 replays of both, each on a fresh input, they are the same."""
    before.instantiate()
    after.instantiate()
    equal = 0
    for k in range(100):
        give(10_000 + k)
        before.replay()
        after.replay()
        torch.cuda.synchronize()
        equal += same()
    return equal


def compared(before, after):
    """What PyTorch takes for a replay of both, in words."""
    times = [(replay_us(before), replay_us(after), back_to_back_us(before), back_to_back_us(after)) for _ in range(3)]
    old, new, old_many, new_many = (min(column) for column in zip(*times))
    return (
        f"PyTorch replays {old:.0f} -> {new:.0f} us = {new / old:.3f}, back to back {old_many:.0f} -> {new_many:.0f} us = "
        f"{new_many / old_many:.3f}"
    )


@contextlib.contextmanager
def alone():
    """One process at a time, since it is timed."""
    with open("/tmp/phonograph-recover.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
    with alone():
        start = time.perf_counter()
        options = {"zeros": "ZEROS" in os.environ, "scratch": "SHARED" not in os.environ, "progress": int(os.environ.get("PROGRESS", 0)), "save": os.environ.get("SAVE")}
        found = phonograph.recover(after, give, samples=int(os.environ.get("SAMPLES", 0)), seconds=float(os.environ.get("LIMIT", 60)), **options)
        seconds = time.perf_counter() - start
        equal = equal_replays(before, after, give, lambda: torch.equal(y_before, y_after))
        replays = compared(before, after)
    print(f"{name}: {found}; {seconds:.1f} s")
    print(f"{name}: {replays}; equal on {equal} of 100 inputs")


if __name__ == "__main__":
    for name in sys.argv[1:] or NETWORKS:
        main(name)
