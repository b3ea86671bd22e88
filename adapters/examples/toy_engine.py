"""A whole engine behind the protocol in plain Python: embedding, dense layers, head, AdamW, in binary64.

Try it: lockstep verify --engine 'python3 adapters/examples/toy_engine.py' FILE"""
import json
import math
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # Not needed where the package is installed.
from lockstep_adapter import Request, Tensor, pack_rows, serve  # noqa: E402


def product(rows, weight):
    """Y = X W^T."""
    return [[math.fsum(x * w for x, w in zip(row, line)) for line in weight] for row in rows]


def norm(row, gain, eps):
    scale = 1 / math.sqrt(sum(x * x for x in row) / len(row) + eps)
    return [x * scale * g for x, g in zip(row, gain)], scale


def norm_backward(row, scale, gain, dy, dgain):
    dot = sum(d * g * x * scale for d, g, x in zip(dy, gain, row)) / len(row)
    for k, (d, x) in enumerate(zip(dy, row)):
        dgain[k] += d * x * scale
    return [scale * (d * g - dot * x * scale) for d, g, x in zip(dy, gain, row)]


def product_backward(rows, weight, dy, dweight):
    """Adds to dweight, returns the gradient of the rows."""
    dx = [[0.0] * len(weight[0]) for _ in rows]
    for row, gradient, out in zip(rows, dy, dx):
        for line, dline, d in zip(weight, dweight, gradient):
            if d:
                for k, x in enumerate(row):
                    dline[k] += d * x
                    out[k] += d * line[k]
    return dx


class Model:
    """Weights, gradients and Adam's moments: name -> list of rows."""

    def __init__(self, request: Request):
        self.eps, self.layers = request.get("model.norm_eps"), len(request.get("model.pattern"))
        self.optimizer = request.get("training.optimizer")
        self.shapes = {name: tensor.shape for name, tensor in request.feed.weights.items()}
        self.weights = {}
        for name, tensor in request.feed.weights.items():
            values, columns = tensor.values(), tensor.shape[-1]
            self.weights[name] = [values[i : i + columns] for i in range(0, len(values), columns)]
        self.m, self.v, self.updates = self.zeros(), self.zeros(), 0
        self.gradients = self.zeros()

    def zeros(self):
        return {name: [[0.0] * len(row) for row in rows] for name, rows in self.weights.items()}

    def forward(self, tokens, targets):
        """The loss of each row, and what the backward pass needs."""
        w, saved = self.weights, []
        x = [list(w["embedding.weight"][token]) for token in tokens]
        for i in range(self.layers):
            normed = [norm(row, w[f"layers.{i}.norm.gain"][0], self.eps) for row in x]
            fc1 = product([row for row, _ in normed], w[f"layers.{i}.fc1.weight"])
            act = [[h * h if h > 0 else 0.0 for h in row] for row in fc1]
            out = product(act, w[f"layers.{i}.fc2.weight"])
            saved.append((x, normed, fc1, act))
            x = [[a + b for a, b in zip(row, add)] for row, add in zip(x, out)]
        final = [norm(row, w["final_norm.gain"][0], self.eps) for row in x]
        losses, dlogits = [], []
        for row, target in zip(product([row for row, _ in final], w["head.weight"]), targets):
            top = max(row)
            powers = [math.exp(value - top) for value in row]
            total = sum(powers)
            losses.append(top + math.log(total) - row[target] if target >= 0 else 0.0)
            dlogits.append([p / total - (k == target) if target >= 0 else 0.0 for k, p in enumerate(powers)])
        return losses, (x, final, dlogits, saved)

    def backward(self, tokens, state, scale):
        w, g = self.weights, self.gradients
        x, final, dlogits, saved = state
        dlogits = [[d * scale for d in row] for row in dlogits]
        d = product_backward([row for row, _ in final], w["head.weight"], dlogits, g["head.weight"])
        d = [norm_backward(row, s, w["final_norm.gain"][0], dy, g["final_norm.gain"][0]) for row, (_, s), dy in zip(x, final, d)]
        for i in reversed(range(self.layers)):
            x, normed, fc1, act = saved[i]
            dact = product_backward(act, w[f"layers.{i}.fc2.weight"], d, g[f"layers.{i}.fc2.weight"])
            dfc1 = [[2 * h * a if h > 0 else 0.0 for h, a in zip(*rows)] for rows in zip(fc1, dact)]
            dn = product_backward([row for row, _ in normed], w[f"layers.{i}.fc1.weight"], dfc1, g[f"layers.{i}.fc1.weight"])
            gain, dgain = w[f"layers.{i}.norm.gain"][0], g[f"layers.{i}.norm.gain"][0]
            dx = [norm_backward(row, s, gain, dy, dgain) for row, (_, s), dy in zip(x, normed, dn)]
            d = [[a + b for a, b in zip(*rows)] for rows in zip(d, dx)]
        for token, row in zip(tokens, d):
            line = g["embedding.weight"][token]
            for k, value in enumerate(row):
                line[k] += value

    def update(self, rate):
        o, self.updates = self.optimizer, self.updates + 1
        size = math.sqrt(sum(x * x for rows in self.gradients.values() for row in rows for x in row))
        clip = o["clip"] / size if 0 < o["clip"] < size else 1.0
        (b1, b2), t = o["betas"], self.updates
        for name, rows in self.weights.items():
            decay = o["weight_decay"] if len(self.shapes[name]) == 2 else 0.0
            for row, grads, ms, vs in zip(rows, self.gradients[name], self.m[name], self.v[name]):
                for k, g in enumerate(grads):
                    ms[k] = b1 * ms[k] + (1 - b1) * g * clip
                    vs[k] = b2 * vs[k] + (1 - b2) * (g * clip) ** 2
                    step = ms[k] / (1 - b1**t) / (math.sqrt(vs[k] / (1 - b2**t)) + o["eps"]) + decay * row[k]
                    row[k] -= rate * step

    def save(self, path):
        pathlib.Path(path).write_text(json.dumps([self.weights, self.m, self.v, self.updates]))

    def load(self, path):
        self.weights, self.m, self.v, self.updates = json.loads(pathlib.Path(path).read_text())


class ToyEngine:
    """What `serve` wants of an engine."""

    Model = Model

    def hello(self):
        return {
            "engine": {"name": "toy", "version": "1", "python": sys.version.split()[0]},
            "device": {"kind": "cpu"},
            "honours": {
                "numerics": ["fp32"], "model.pattern": {"symbols": "-", "max": 4}, "model.hidden": {"min": 1, "max": 64},
                "model.vocab": {"min": 2, "max": 256}, "model.norm_eps": True, "model.mlp.hidden": {"min": 1, "max": 128},
                "data.pack_length": {"min": 1, "max": 128}, "data.align": True, "data.gaps": True,
                "data.tail": ["append_dummy_seq", "extend_last"], "training.microbatches": {"min": 1, "max": 8},
                "training.change_microbatches_at": True, "training.eval_every": True, "training.optimizer.betas": True,
                "training.optimizer.eps": True, "training.optimizer.weight_decay": True, "training.optimizer.clip": True,
                "feed.empty_documents": True, "feed.empty_packs": True, "feed.loss_scale": True, "feed.learning_rate": True,
                "feed.padding_token": True, "run.resume_at": True},
            "claims": {"deterministic": True, "weights_by_name": True, "padding_defined": False, "row_invariant": ["fp32"]},
            "observes": ["token_loss", "gradient", "weight", "moment1", "moment2"],
            "counts": {name: "said" for name in ("microbatches", "tokens", "targets", "evaluations", "resumes")}}

    def check(self, scenario):
        kind = scenario["model"]["mlp"]["activation"]
        return [] if kind == "squared_relu" else [{"key": "model.mlp.activation", "why": f"{kind} is not built"}]

    def run(self, request, out):
        model = self.Model(request)
        count = {name: 0 for name in ("microbatches", "tokens", "targets", "evaluations", "resumes")}
        for step in range(request.get("training.steps")):
            if step in request.resume_at:
                path = os.path.join(request.folder, "state")
                model.save(path)
                model = self.Model(request)
                model.load(path)
                count["resumes"] += 1
            model.gradients = model.zeros()
            for m, documents in enumerate(request.feed.microbatches("training", step, request.rank, request.ranks)):
                tokens, targets = self.microbatch(request, out, model, documents, step, m, "training")
                count["microbatches"] += 1
                count["tokens"] += sum(len(document.tokens) for document in documents)
                count["targets"] += sum(target >= 0 for target in targets)
            self.tell(out, "gradient", model, model.gradients, step)
            model.update(request.feed.learning_rate[step])
            for kind, values in (("weight", model.weights), ("moment1", model.m), ("moment2", model.v)):
                self.tell(out, kind, model, values, step)
            evaluation = request.feed.microbatches("evaluation", step, request.rank, request.ranks)
            count["evaluations"] += bool(evaluation)
            for m, documents in enumerate(evaluation):
                self.microbatch(request, out, model, documents, step, m, "evaluation")
        return count

    def pack(self, request, documents):
        """The documents in one pack: where they lie, and token and target of every row."""
        length = request.get("data.pack_length")
        rows = pack_rows([len(d.tokens) for d in documents], length, request.get("data.align"), request.get("data.gaps"))
        tokens, targets = [request.feed.padding_token] * length, [-1] * length
        for (begin, end), document in zip(rows, documents):
            tokens[begin:end], targets[begin:end] = document.tokens, document.targets
        return rows, tokens, targets

    def microbatch(self, request, out, model, documents, step, m, phase):
        rows, tokens, targets = self.pack(request, documents)
        losses, state = model.forward(tokens, targets)
        out.rows(step, m, rows, phase)
        out.tensor("token_loss", "token_loss", Tensor.of("F64", [len(losses)], losses), step, m, phase)
        if phase == "training":
            model.backward(tokens, state, request.feed.loss_scale[step])
        return tokens, targets

    def tell(self, out, kind, model, values, step):
        for name, rows in values.items():
            if out.wants(kind):
                out.tensor(kind, name, Tensor.of("F64", model.shapes[name], [x for row in rows for x in row]), step)


if __name__ == "__main__":
    serve(ToyEngine())
