"""What recovering gives on training steps, as captured on one stream: forward, backward and the optimizer's update.

    cargo build --release -p phonograph-c
    PHONOGRAPH_LIBRARY=target/release/libphonograph_c.so python3 crates/c/examples/train.py [STEP…]

Two copies of one network take 100 steps on the same data, one as captured, one recovered. Prints the graph as recovered,
microseconds of both as PyTorch replays them, and after how many steps losses and parameters were equal bit for bit.
"""

import copy
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from recover import alone, compared, equal_replays, phonograph

torch.backends.cudnn.deterministic = True
CLASSES = 10


def perceptron():
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, CLASSES)]
    return torch.nn.Sequential(*layers), (64, 256)


class Heads(torch.nn.Module):
    """A trunk and six heads, whose losses are of one sum."""

    def __init__(self):
        super().__init__()
        head = lambda: torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.LayerNorm(512), torch.nn.GELU(), torch.nn.Linear(512, CLASSES))
        self.trunk, self.heads = torch.nn.Linear(256, 512), torch.nn.ModuleList(head() for _ in range(6))

    def forward(self, x):
        trunk = torch.relu(self.trunk(x))
        return sum(head(trunk) for head in self.heads)


class LastToken(torch.nn.Module):
    """A language model whose last token is classified."""

    def __init__(self):
        super().__init__()
        import transformers

        config = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000, use_cache=False, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        self.model, self.classes = transformers.GPT2LMHeadModel(config), torch.nn.Linear(1000, CLASSES)

    def forward(self, x):
        return self.classes(self.model(x).logits[:, -1])


def vision(name):
    import torchvision

    return getattr(torchvision.models, name)(weights=None, num_classes=CLASSES), (8, 3, 64, 64)


# Network and optimizer.
STEPS = {
    "perceptron-adam": (perceptron, "adam"),
    "heads-sgd": (lambda: (Heads(), (32, 256)), "sgd"),
    "heads-adam": (lambda: (Heads(), (32, 256)), "adam"),
    "gpt2-adam": (lambda: (LastToken(), (4, 64)), "adam"),
    "resnet18-sgd": (lambda: vision("resnet18"), "sgd"),
    "resnet50-sgd": (lambda: vision("resnet50"), "sgd"),
    "resnet18-adam": (lambda: vision("resnet18"), "adam"),
}


def optimizer(kind, model):
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)


def captured(model, kind, x, target):
    model = copy.deepcopy(model).cuda().train()
    update = optimizer(kind, model)

    def step():
        update.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        update.step()
        return loss

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with phonograph.capture(graph, stream=stream):
        loss = step()
    graph.optimizer = update  # What it remembers of each parameter is as much the graph's as the parameters are.
    return graph, [loss.detach(), *(tensor.detach() for tensor in (*model.parameters(), *model.buffers()))]


def same(left, right):
    return all(map(torch.equal, left, right))


def main(name):
    if name not in STEPS:
        sys.exit(f"no step {name!r}; there are {', '.join(STEPS)}")
    torch.manual_seed(0)
    make, kind = STEPS[name]
    model, shape = make()
    generator = torch.Generator("cuda")
    tokens = isinstance(model, LastToken)
    x = torch.zeros(shape, device="cuda", dtype=torch.long if tokens else torch.float)
    target = torch.zeros(shape[0], dtype=torch.long, device="cuda")

    def give(k):
        generator.manual_seed(1000 + k)
        x.copy_(torch.randint(0, 1000, shape, device="cuda", generator=generator) if tokens else torch.randn(shape, device="cuda", generator=generator))
        target.copy_(torch.randint(0, CLASSES, target.shape, device="cuda", generator=generator))

    give(0)
    before, results_before = captured(model, kind, x, target)
    after, results_after = captured(model, kind, x, target)
    kept = [tensor.clone() for tensor in results_after]
    with alone():
        start = time.perf_counter()
        found = phonograph.recover(after, give, scratch="SHARED" not in os.environ, seconds=float(os.environ.get("LIMIT", 60)), save=os.environ.get("SAVE"))
        seconds = time.perf_counter() - start
        if not same(results_after, kept):
            sys.exit(f"{name}: parameters are not as they were before the observation")
        equal = equal_replays(before, after, give, lambda: same(results_before, results_after))
        replays = compared(before, after)
    print(f"{name}: {found}; {seconds:.1f} s")
    print(f"{name}: {replays}; equal after {equal} of 100 steps, loss {results_after[0].item():.4f}")


if __name__ == "__main__":
    for name in sys.argv[1:] or STEPS:
        main(name)
