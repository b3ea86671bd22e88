"""The gradients of torch_step, whose time `lockstep bench --peer` prints, are those of the same model in double precision by autograd.
Exit status 77: PyTorch or Triton cannot be imported here. Without a GPU Triton's interpreter computes, which needs numpy below 2.4."""
import os
import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
try:
    import torch
    GPU = torch.cuda.is_available()
    if not GPU:
        os.environ["TRITON_INTERPRET"] = "1"
        import numpy
        if tuple(int(n) for n in numpy.__version__.split(".")[:2]) >= (2, 4):
            raise ImportError(f"Triton's interpreter fails under numpy {numpy.__version__}")
    import triton  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import torch.nn.functional as F  # noqa: E402
from lockstep_adapter import torch_step  # noqa: E402

DEVICE = torch.device("cuda" if GPU else "cpu")
ROWS = 64
SHAPE = {"pattern": "M-*M", "hidden": 48, "vocab": 40, "norm_eps": 1e-5, "tied_embedding": False, "dropout": 0,
         "attention": {"heads": 4, "kv_heads": 2, "head_dim": 16, "rope_base": 10000},
         "mamba": {"d_inner": 64, "head_dim": 16, "groups": 2, "state": 16, "conv_width": 4, "chunk": 16},
         "mlp": {"hidden": 64, "activation": "squared_relu"}}
OPTIMIZER = {"lr": 1e-3, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 1.0}
# Documents begin within chunks and at their bounds, one has a single token, and rows are left over.
PACKS = [[[20, 1, 11, 16, 10], [64]]]


def norm(x, gain):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + SHAPE["norm_eps"]) * gain


class Double:
    """The model row by row in double precision, from the weights that products use."""

    def __init__(self, model):
        self.model, names = model, model.parameters.weight
        in_products = {name for name, weight in names.items() if weight.dim() > 1 and "conv" not in name}
        of = {name: (model.parameters.copy if name in in_products else names)[name] for name in names}
        self.p = {name: weight.double().requires_grad_() for name, weight in of.items()}

    def loss(self, pack):
        document, position = pack.document.long(), pack.position.long()
        layers = {"M": self.mamba, "*": self.attention, "-": self.mlp}
        residual = self.p["embedding"][pack.tokens]
        for layer, symbol in enumerate(self.model.pattern):
            own = {name.split(".")[1]: weight for name, weight in self.p.items() if name.startswith(f"{layer}.")}
            residual = residual + layers[symbol](own, norm(residual, own["gain"]), document, position)
        logits = norm(residual, self.p["final.gain"]) @ self.p["head"].t()
        return F.cross_entropy(logits, pack.targets, ignore_index=-1, reduction="sum") * pack.scale.double()

    def mlp(self, p, x, document, position):
        return torch.relu(x @ p["fc1"].t()).square() @ p["fc2"].t()

    def attention(self, p, x, document, position):
        q, k, v = self.model.heads_of(x @ p["qkv"].t())
        half = q.shape[2] // 2
        cosine, sine = (part[:, None] for part in self.model.table.double()[position].chunk(2, 1))

        def turned(a):
            return torch.cat([a[..., :half] * cosine - a[..., half:] * sine, a[..., :half] * sine + a[..., half:] * cosine], -1)

        q, k, row = turned(q), turned(k), torch.arange(ROWS, device=x.device)
        k, v = (a.repeat_interleave(q.shape[1] // k.shape[1], 1) for a in (k, v))
        sees = (document[:, None] == document[None]) & (row[:, None] >= row[None])
        scores = torch.einsum("ihd,jhd->hij", q, k) / q.shape[2] ** 0.5
        out = torch.einsum("hij,jhd->ihd", scores.masked_fill(~sees, -torch.inf).softmax(-1), v)
        return out.flatten(1) @ p["proj"].t()

    def mamba(self, p, x, document, position):
        m = SHAPE["mamba"]
        heads, bc = m["d_inner"] // m["head_dim"], m["groups"] * m["state"]
        z, xbc, raw = (x @ p["in_proj"].t()).split([m["d_inner"], m["d_inner"] + 2 * bc, heads], 1)
        total = p["conv_bias"].expand(ROWS, -1)
        for k in range(m["conv_width"]):
            total = total + F.pad(xbc, (0, 0, k, 0))[:ROWS] * (position >= k)[:, None] * p["conv_weight"][:, m["conv_width"] - 1 - k]
        u, b, c = F.silu(total).split([m["d_inner"], bc, bc], 1)
        u = u.unflatten(1, (heads, -1))
        b, c = (a.unflatten(1, (m["groups"], -1)).repeat_interleave(heads // m["groups"], 1) for a in (b, c))
        step, rate = F.softplus(raw + p["dt_bias"]), -p["a_log"].exp()
        state, rows = None, []
        for t in range(ROWS):
            added = (step[t, :, None] * u[t])[:, :, None] * b[t][:, None, :]
            state = added if position[t] == 0 else (step[t] * rate).exp()[:, None, None] * state + added
            rows.append((state * c[t][:, None, :]).sum(-1) + p["d"][:, None] * u[t])
        gated = (torch.stack(rows).flatten(1) * F.silu(z)).unflatten(1, (m["groups"], -1))
        return norm(gated, 1).flatten(1) * p["gate_gain"] @ p["out_proj"].t()


class TorchStep(unittest.TestCase):
    def test_gradients_are_those_in_double_precision(self):
        model = torch_step.Model(SHAPE, ROWS, DEVICE)
        packs = torch_step.Packs(model, 2, *torch_step.bucket(PACKS, ROWS))
        packs.draw(PACKS[0])
        packs.load()
        double = Double(model)
        want = sum(double.loss(pack) for pack in packs.own)
        want.backward()
        functions = types.SimpleNamespace(squared_relu=torch_step.squared_relu, squared_relu_backward=torch_step.squared_relu_backward)
        got = sum(model.microbatch(pack, functions).sum() for pack in packs.own)
        self.assertLess(abs(float(got) - want.item()), 1e-3 * want.item())
        for name, gradient in model.parameters.gradient.items():
            exact = double.p[name].grad
            error = float((gradient.double() - exact).norm() / exact.norm())
            # bf16 keeps 8 bits, and some dozen roundings lie between a weight and the loss. Of A_log and dt_bias little is left
            # after terms of either sign.
            self.assertLess(error, 0.1 if name.endswith(("a_log", "dt_bias")) else 0.03, name)

    @unittest.skipUnless(GPU, "needs a GPU")
    def test_every_mode_computes_one_step_and_deterministic_modes_repeat_it(self):
        peer = torch_step.Peer(DEVICE)
        modes = peer.begin({"model": SHAPE, "rows": ROWS, "optimizer": OPTIMIZER, "packs": PACKS})["modes"]
        self.assertEqual([mode["mode"] for mode in modes], list(torch_step.MODES))
        packs = peer.modes["eager"].packs
        losses = {}
        for name in [*torch_step.MODES, "deterministic"]:
            peer.model.parameters.restart()
            packs.generator.manual_seed(11)
            self.assertEqual(len(peer.steps({"mode": name, "packs": PACKS * 3})["seconds"]), 3)
            losses.setdefault(name, []).append([float(loss) for loss in peer.modes[name].losses])
        for name, (first, *again) in losses.items():
            for own, eager in zip(first, losses["eager"][0]):
                self.assertLess(abs(own - eager), 1e-3 * eager, name)
            for more in again:
                self.assertEqual(first, more)


if __name__ == "__main__":
    unittest.main()
