"""Captures that are right: a network of torchvision and a model of transformers, each replayed. Tracing it shall warn of nothing."""

import sys

import torch


def capture(model, *inputs):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3):
                expected = model(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(*inputs)
    for _ in range(100):
        graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, expected)


def resnet():
    import torchvision

    model = torchvision.models.resnet18(weights=None).eval().cuda()
    capture(model, torch.randn(8, 3, 224, 224, device="cuda"))


def bert():
    import transformers

    config = transformers.BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
    model = transformers.BertModel(config).eval().cuda()
    mask = torch.ones(4, 64, dtype=torch.long, device="cuda")
    ids = torch.randint(0, 1000, (4, 64), device="cuda")
    capture(lambda ids, mask: model(input_ids=ids, attention_mask=mask).last_hidden_state, ids, mask)


{"resnet": resnet, "bert": bert}[sys.argv[1]]()
print("ok")
