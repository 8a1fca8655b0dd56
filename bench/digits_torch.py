#!/usr/bin/env python3
"""The training step of examples/digits in PyTorch, as one CUDAGraph: the same sizes, noise and optimiser.

Prints the median time of a replay with nothing else, with the batch and the learning rate set before it, and of steps in a
row; and the accuracy, so that it is seen to train. Needs PyTorch with CUDA. Run it beside
`digits --backend cuda` on the same machine.

    python3 bench/digits_torch.py crates/phonograph/tests/data/digits.u8.gz
"""
import gzip
import statistics
import sys
import time

import torch
import torch.nn.functional as F

BATCH, PIXELS, HIDDEN, CLASSES, HELD_OUT, NOISE, RATE, STEPS = 128, 64, 128, 10, 360, 0.15, 4e-3, 3000


def step_graph(pixels, labels, fused):
    """Parameters, what is set before a step, and the captured step."""
    weights = [
        (torch.randn(PIXELS, HIDDEN, device="cuda") * (2 / PIXELS) ** 0.5).requires_grad_(),
        torch.zeros(HIDDEN, device="cuda", requires_grad=True),
        (torch.randn(HIDDEN, CLASSES, device="cuda") * (2 / HIDDEN) ** 0.5).requires_grad_(),
        torch.zeros(CLASSES, device="cuda", requires_grad=True),
    ]
    w1, b1, w2, b2 = weights
    order = torch.randperm(len(labels), device="cuda")
    start = torch.zeros((), dtype=torch.long, device="cuda")
    rate = torch.tensor(RATE, device="cuda")
    places = torch.arange(BATCH, device="cuda")
    adam = torch.optim.Adam(weights, lr=rate, capturable=True, fused=fused)

    def step():
        adam.zero_grad(set_to_none=True)
        chosen = order[start + places]
        x = pixels[chosen]
        x = x + NOISE * torch.randn_like(x)
        hidden = torch.relu(torch.addmm(b1, x, w1))
        loss = F.cross_entropy(torch.addmm(b2, hidden, w2), labels[chosen])
        loss.backward()
        adam.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    # A graph keeps none of what it works on alive.
    return weights, order, start, rate, graph, (adam, places)


def run(train, test, fused):
    pixels, labels = train
    weights, order, start, rate, graph, kept = step_graph(pixels, labels, fused)
    batches = len(labels) // BATCH
    began = None
    for at in range(STEPS):
        if at == 20:
            torch.cuda.synchronize()
            began = time.perf_counter()
        if at % batches == 0:
            order.copy_(torch.randperm(len(labels), device="cuda"))
        start.fill_(at % batches * BATCH)
        rate.fill_(RATE * (1 - at / STEPS))
        graph.replay()
    torch.cuda.synchronize()
    row = (time.perf_counter() - began) / (STEPS - 20)
    w1, b1, w2, b2 = weights
    with torch.no_grad():
        guesses = (torch.relu(test[0] @ w1 + b1) @ w2 + b2).argmax(1)
        accuracy = (guesses == test[1]).float().mean().item()
    alone, bare = [], []
    for turn in range(2000):
        began = time.perf_counter()
        if turn % 2 == 0:
            start.fill_(turn % 9 * BATCH)
            rate.fill_(1e-4 / (turn + 1))
        graph.replay()
        torch.cuda.synchronize()
        (alone if turn % 2 == 0 else bare).append(time.perf_counter() - began)
    print(
        f"  PyTorch {torch.__version__}, Adam {'fused' if fused else 'for each'}: accuracy {accuracy * 100:.1f} %; "
        f"a step {row * 1e6:.1f} µs in a row, {statistics.median(alone) * 1e6:.1f} µs alone, "
        f"{statistics.median(bare) * 1e6:.1f} µs without new slots"
    )
    del kept


def main():
    rows = gzip.open(sys.argv[1]).read()
    table = torch.frombuffer(bytearray(rows), dtype=torch.uint8).view(-1, PIXELS + 1).cuda()
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(1)).cuda()]
    pixels, labels = table[:, :PIXELS].float() / 16, table[:, PIXELS].long()
    test, train = (pixels[:HELD_OUT], labels[:HELD_OUT]), (pixels[HELD_OUT:], labels[HELD_OUT:])
    print(torch.cuda.get_device_name())
    for fused in [True, False]:
        run(train, test, fused)


main()
