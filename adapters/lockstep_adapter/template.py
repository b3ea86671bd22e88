"""A template for an engine in PyTorch: docs/judge-your-engine.md. Copy it, and put your engine where HERE stands.

As it is, it trains a small model on a CPU: lockstep verify --engine 'python3 -m lockstep_adapter.template' FILE"""
import sys

import torch
from torch import nn

from . import pack_rows, serve  # In your copy: from lockstep_adapter import pack_rows, serve
from .torch_tensors import TorchTensor  # In your copy: from lockstep_adapter.torch_tensors import TorchTensor


class Model(nn.Module):
    """HERE: your model. This one has layers that mix a row with the mean of the rows before it in its document."""

    def __init__(self, vocab, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens, document):
        seen = (document[:, None] == document[None]) & torch.ones(len(tokens), len(tokens)).tril().bool()
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + torch.tanh(layer(seen.float() @ x / seen.sum(-1, keepdim=True)))
        return self.head(x)


class Engine:
    def hello(self):
        """HERE: what your engine honours. A key that is missing stays at its neutral value (section 12 of the protocol)."""
        return {
            "engine": {"name": "template", "version": "1", "torch": torch.__version__},
            "device": {"kind": "cpu"},
            "honours": {
                "numerics": ["fp32"], "model.pattern": {"symbols": "-", "max": 4}, "model.hidden": {"min": 1, "max": 256},
                "model.vocab": {"min": 2}, "data.pack_length": {"max": 512}, "data.tail": True, "training.microbatches": True,
                "feed.empty_documents": True, "feed.loss_scale": True, "feed.learning_rate": True, "feed.padding_token": True},
            "claims": {"deterministic": True},  # No weights_by_name: the weights are the engine's own, the same in each run.
            "observes": ["token_loss", "gradient", "weight"],
            "counts": {"microbatches": "said", "tokens": "said", "targets": "said"}}

    def check(self, scenario):
        """HERE: refusals of combinations that no single key forbids, as {"key": ..., "why": ...}."""
        return []

    def run(self, request, out):
        """One run from the start: builds, trains, tells `out` what it saw. Returns the counters."""
        torch.manual_seed(1)
        torch.use_deterministic_algorithms(True)
        model = Model(request.get("model.vocab"), request.get("model.hidden"), len(request.get("model.pattern")))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        counts = {"microbatches": 0, "tokens": 0, "targets": 0}
        for step in range(request.get("training.steps")):
            out.phase(f"step {step}")  # Shown if the run dies or hangs there.
            optimizer.zero_grad()
            for m, documents in enumerate(request.feed.microbatches("training", step, request.rank, request.ranks)):
                losses = self.microbatch(request, out, model, documents, step, m)
                (losses.sum() * request.feed.loss_scale[step]).backward()  # Gradients are sums over the microbatches.
                counts["microbatches"] += 1
                counts["tokens"] += sum(len(document.tokens) for document in documents)
                counts["targets"] += sum(target >= 0 for document in documents for target in document.targets)
            self.tell(out, "gradient", model, step, lambda parameter: parameter.grad)
            optimizer.param_groups[0]["lr"] = request.feed.learning_rate[step]
            optimizer.step()
            self.tell(out, "weight", model, step, lambda parameter: parameter)
        return counts

    def microbatch(self, request, out, model, documents, step, m):
        """HERE: how your engine packs. The loss of each row, 0 where there is no target: select, do not multiply."""
        length = request.get("data.pack_length")
        rows = pack_rows([len(document.tokens) for document in documents], length)
        tokens, targets, owner = [request.feed.padding_token] * length, [-1] * length, [len(documents)] * length
        for number, ((begin, end), document) in enumerate(zip(rows, documents)):
            tokens[begin:end], targets[begin:end] = document.tokens, document.targets
            owner[begin:end] = [number] * (end - begin)
        logits = model(torch.tensor(tokens), torch.tensor(owner))
        losses = nn.functional.cross_entropy(logits, torch.tensor(targets), ignore_index=-1, reduction="none")
        out.rows(step, m, rows)  # Where each document lies; before tensors that have rows.
        out.tensor("token_loss", "token_loss", lambda: TorchTensor(losses), step, m)
        return losses

    def tell(self, out, kind, model, step, tensor_of):
        for name, parameter in model.named_parameters():
            out.tensor(kind, name, lambda: TorchTensor(tensor_of(parameter)), step)


if __name__ == "__main__":
    serve(Engine(), sys.argv[1:])
