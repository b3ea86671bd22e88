"""PyTorch's training step of a scenario's model, for `lockstep bench FILE --peer`: python3 -m lockstep_adapter.torch_step

The layers M, * and -, packed documents, bf16 products, fp32 gradients and weights, AdamW. Products by cuBLAS, which adds gradients of
weights in fp32, attention by FlashAttention (aten), all else by Triton or torch.compile. Modes: eager (what is elementwise by ordinary
functions), compile (by torch.compile), graph (the same, the whole step as one CUDA graph), deterministic (the same under
torch.use_deterministic_algorithms). It is not judged: its arithmetic is PyTorch's. LOCKSTEP_PEER_DEVICE=cpu, for tests of small models
by Triton's interpreter (TRITON_INTERPRET=1): steps are timed by the host's clock, and no mode differs from another.

Lines of JSON at the descriptors LOCKSTEP_ENGINE_FDS, each reply with its request's `id`:
    {"op": "begin", "model": {..}, "rows": n, "optimizer": {..}, "packs": [[[length, ..], ..microbatches], ..steps]}
        -> {"torch": "2.11.0", "device": "..", "modes": [{"mode": "..", "not_run": "why" if it cannot run, "bytes": reserved}]}
    {"op": "steps", "mode": "..", "packs": [..]} -> {"seconds": [of each step by CUDA events], "wall_seconds": of all}
A request that fails has {"failed": "why"}."""
import functools
import json
import math
import os
import time
import types

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
try:
    import torch

    from . import torch_kernels, torch_scan
except ImportError as missing:
    raise SystemExit(f"needs PyTorch and Triton: {missing}") from None

MODES = ("eager", "compile", "graph", "deterministic")
WARM_STEPS = 3


def squared_relu(h):
    return torch.relu(h).square()


def squared_relu_backward(h, slope):
    return 2 * torch.relu(h) * slope


def add_gradient(total, slope, x):
    """total += slope' x, in fp32: the gradient of the weight of y = x weight'."""
    if total.is_cuda:
        torch.ops.aten.addmm.dtype_out(total, slope.t(), x, torch.float32, out=total)
    else:
        total.addmm_(slope.t().float(), x.float())


def dense_attention(q, k, v, bounds):
    """On a CPU, for tests."""
    row, shared = torch.arange(q.shape[0]), q.shape[1] // k.shape[1]
    document = torch.searchsorted(bounds, row, right=True)
    sees = (document[:, None] == document[None, :]) & (row[:, None] >= row[None, :])
    k, v = (x.float().repeat_interleave(shared, 1) for x in (k, v))
    scores = torch.einsum("ihd,jhd->hij", q.float(), k) / math.sqrt(q.shape[2])
    return torch.einsum("hij,jhd->ihd", scores.masked_fill(~sees, -math.inf).softmax(-1), v).to(q.dtype)


def attention(q, k, v, bounds, longest):
    if not q.is_cuda:
        with torch.enable_grad():
            leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
            out = dense_attention(*leaves, bounds)
        return out.detach(), (out, leaves)
    out, lse, rng, unused, _ = torch.ops.aten._flash_attention_forward(q, k, v, bounds, bounds, longest, longest, 0.0, True, False)
    return out, (out, lse, rng, unused)


def attention_backward(slope, q, k, v, bounds, longest, saved):
    if not q.is_cuda:
        return torch.autograd.grad(*saved, slope)
    out, lse, rng, unused = saved
    return torch.ops.aten._flash_attention_backward(slope, q, k, v, out, lse, bounds, bounds, longest, longest, 0.0, True, rng, unused)


class Parameters:
    """fp32 weights, moments and gradients, and bf16 copies, each in one piece: first those with weight decay, then the others."""

    def __init__(self, shapes, device):
        """shapes: {name: shape}."""
        self.names = sorted(shapes, key=lambda name: len(shapes[name]) == 1)
        sizes = {name: (math.prod(shapes[name]) + 63) // 64 * 64 for name in self.names}
        total = sum(sizes.values())
        self.decayed = sum(sizes[name] for name in self.names if len(shapes[name]) > 1)
        self.weights, self.gradients, self.first, self.second = (torch.zeros(total, device=device) for _ in range(4))
        self.copies = torch.zeros(total, dtype=torch.bfloat16, device=device)
        self.steps = [torch.zeros((), device=device) for _ in range(2)]
        self.weight, self.gradient, self.copy = {}, {}, {}
        place = 0
        for name in self.names:
            for flat, views in ((self.weights, self.weight), (self.gradients, self.gradient), (self.copies, self.copy)):
                views[name] = flat[place:place + math.prod(shapes[name])].view(shapes[name])
            place += sizes[name]

    def restart(self):
        """Draws the weights, and forgets the moments."""
        generator = torch.Generator(self.weights.device).manual_seed(7)
        for name, weight in self.weight.items():
            kind = name.split(".")[-1]
            if kind in ("gain", "gate_gain", "d"):
                weight.fill_(1)
            elif kind == "a_log":
                weight.uniform_(1, 16, generator=generator).log_()
            elif kind == "dt_bias":
                weight.uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp_().expm1_().log_()
            elif kind == "conv_weight":
                weight.uniform_(-0.5, 0.5, generator=generator)
            elif weight.dim() > 1:
                weight.normal_(0, 0.02, generator=generator)
            else:
                weight.zero_()
        for state in (self.first, self.second, *self.steps):
            state.zero_()
        self.round()

    def round(self):
        self.copies.copy_(self.weights)

    def update(self, optimizer):
        """Clips by the norm of all gradients: the update divides them by what they are too large."""
        clip = optimizer["clip"]
        excess = (torch.linalg.vector_norm(self.gradients) / clip).clamp(min=1) if clip > 0 else None
        for part, decay, step in ((slice(0, self.decayed), optimizer["weight_decay"], self.steps[0]),
                                  (slice(self.decayed, None), 0.0, self.steps[1])):
            step.add_(1)
            torch._fused_adamw_([self.weights[part]], [self.gradients[part]], [self.first[part]], [self.second[part]], [], [step],
                                lr=optimizer["lr"], beta1=optimizer["beta1"], beta2=optimizer["beta2"], weight_decay=decay,
                                eps=optimizer["eps"], amsgrad=False, maximize=False, grad_scale=excess)
        self.round()


class Model:
    def __init__(self, model, rows, device):
        self.rows, self.device, self.pattern, self.d, self.vocabulary = rows, device, model["pattern"], model["hidden"], model["vocab"]
        self.eps = model["norm_eps"]
        mamba, heads = model["mamba"], model["attention"]
        self.q_heads, self.kv_heads, self.head_dim = heads["heads"], heads["kv_heads"], heads["head_dim"]
        self.inner, self.mamba_heads = mamba["d_inner"], mamba["d_inner"] // mamba["head_dim"]
        self.channels = mamba["d_inner"] + 2 * mamba["groups"] * mamba["state"]
        self.groups, self.width, self.mlp = mamba["groups"], mamba["conv_width"], model["mlp"]["hidden"]
        self.scan = torch_scan.Scan(rows, self.mamba_heads, mamba["head_dim"], mamba["groups"], mamba["state"], mamba["chunk"])
        self.parameters = Parameters(self.shapes(), device)
        self.parameters.restart()
        frequency = heads["rope_base"] ** (-torch.arange(0, self.head_dim, 2, device=device).double() / self.head_dim)
        angle = torch.arange(rows, device=device).double()[:, None] * frequency
        self.table = torch.cat([angle.cos(), angle.sin()], 1).float()

    def shapes(self):
        d, qkv = self.d, (self.q_heads + 2 * self.kv_heads) * self.head_dim
        of = {
            "M": {"in_proj": (self.inner + self.channels + self.mamba_heads, d), "conv_weight": (self.channels, self.width),
                  "conv_bias": (self.channels,), "dt_bias": (self.mamba_heads,), "a_log": (self.mamba_heads,),
                  "d": (self.mamba_heads,), "gate_gain": (self.inner,), "out_proj": (d, self.inner)},
            "*": {"qkv": (qkv, d), "proj": (d, self.q_heads * self.head_dim)},
            "-": {"fc1": (self.mlp, d), "fc2": (d, self.mlp)},
        }
        shapes = {"embedding": (self.vocabulary, d), "final.gain": (d,), "head": (self.vocabulary, d)}
        for layer, symbol in enumerate(self.pattern):
            shapes |= {f"{layer}.{name}": shape for name, shape in (of[symbol] | {"gain": (d,)}).items()}
        return shapes

    # ---- A layer: `forward` takes the normed rows and returns the mixer's output and what is saved; `backward` returns the gradient of
    # the normed rows and adds to those of weights. ----

    def forward_m(self, layer, x, pack, functions):
        w, copy = self.parameters.weight, self.parameters.copy
        projected = x @ copy[f"{layer}.in_proj"].t()
        z, raw = projected[:, :self.inner], projected[:, self.inner + self.channels:]
        xbc = projected[:, self.inner:self.inner + self.channels]
        mixed = torch_scan.conv_forward(xbc, w[f"{layer}.conv_weight"], w[f"{layer}.conv_bias"], pack.position)
        y, states = self.scan.forward(mixed, raw, *(w[f"{layer}.{name}"] for name in ("dt_bias", "a_log", "d")), pack.document)
        gated, rstd = torch_scan.gated_forward(y, z, w[f"{layer}.gate_gain"], self.groups, self.eps)
        return gated @ copy[f"{layer}.out_proj"].t(), (projected, mixed, y, states, gated, rstd)

    def backward_m(self, layer, slope, x, saved, pack, functions):
        w, copy, gradient = self.parameters.weight, self.parameters.copy, self.parameters.gradient
        projected, mixed, y, states, gated, rstd = saved
        split = [self.inner, self.channels, self.mamba_heads]
        (z, xbc, raw), dprojected = projected.split(split, 1), torch.empty_like(projected)
        dz, dxbc, draw = dprojected.split(split, 1)
        dgated = slope @ copy[f"{layer}.out_proj"]
        add_gradient(gradient[f"{layer}.out_proj"], slope, gated)
        dy, dgain = torch_scan.gated_backward(y, z, w[f"{layer}.gate_gain"], rstd, dgated, dz)
        dmixed = torch.empty_like(mixed)
        sums = self.scan.backward(states, mixed, raw, *(w[f"{layer}.{name}"] for name in ("dt_bias", "a_log", "d")), pack.document, dy,
                                  dmixed, draw)
        dweight, dbias = torch_scan.conv_backward(xbc, w[f"{layer}.conv_weight"], w[f"{layer}.conv_bias"], pack.position, dmixed, dxbc)
        added = {"gate_gain": dgain, "dt_bias": sums[0], "a_log": sums[1], "d": sums[2], "conv_weight": dweight, "conv_bias": dbias}
        torch._foreach_add_([gradient[f"{layer}.{name}"] for name in added], list(added.values()))
        add_gradient(gradient[f"{layer}.in_proj"], dprojected, x)
        return dprojected @ copy[f"{layer}.in_proj"]

    def heads_of(self, qkv):
        q, k, v = qkv.split([self.q_heads * self.head_dim] + 2 * [self.kv_heads * self.head_dim], 1)
        return (part.unflatten(1, (-1, self.head_dim)) for part in (q, k, v))

    def forward_attention(self, layer, x, pack, functions):
        qkv = x @ self.parameters.copy[f"{layer}.qkv"].t()
        torch_kernels.rotate(qkv, self.table, pack.position, qkv, self.q_heads + self.kv_heads, 1.0)
        out, saved = attention(*self.heads_of(qkv), pack.bounds, pack.longest)
        flat = out.flatten(1)
        return flat @ self.parameters.copy[f"{layer}.proj"].t(), (qkv, flat, saved)

    def backward_attention(self, layer, slope, x, saved, pack, functions):
        copy, gradient = self.parameters.copy, self.parameters.gradient
        qkv, flat, core = saved
        dflat = slope @ copy[f"{layer}.proj"]
        add_gradient(gradient[f"{layer}.proj"], slope, flat)
        slopes = attention_backward(dflat.unflatten(1, (-1, self.head_dim)), *self.heads_of(qkv), pack.bounds, pack.longest, core)
        dqkv = torch.empty_like(qkv)
        dq, dk, dv = (part.flatten(1) for part in self.heads_of(dqkv))
        torch_kernels.rotate(slopes[0].flatten(1), self.table, pack.position, dqkv, self.q_heads, -1.0)
        torch_kernels.rotate(slopes[1].flatten(1), self.table, pack.position, dqkv[:, dq.shape[1]:], self.kv_heads, -1.0)
        dqkv[:, dq.shape[1] + dk.shape[1]:].copy_(slopes[2].flatten(1))
        add_gradient(gradient[f"{layer}.qkv"], dqkv, x)
        return dqkv @ copy[f"{layer}.qkv"]

    def forward_mlp(self, layer, x, pack, functions):
        h = x @ self.parameters.copy[f"{layer}.fc1"].t()
        active = functions.squared_relu(h)
        return active @ self.parameters.copy[f"{layer}.fc2"].t(), (h, active)

    def backward_mlp(self, layer, slope, x, saved, pack, functions):
        h, active = saved
        add_gradient(self.parameters.gradient[f"{layer}.fc2"], slope, active)
        dh = functions.squared_relu_backward(h, slope @ self.parameters.copy[f"{layer}.fc2"])
        add_gradient(self.parameters.gradient[f"{layer}.fc1"], dh, x)
        return dh @ self.parameters.copy[f"{layer}.fc1"]

    def microbatch(self, pack, functions):
        """Adds to the gradients; returns the losses of the rows."""
        w, gradient = self.parameters.weight, self.parameters.gradient
        layers = {"M": (self.forward_m, self.backward_m), "*": (self.forward_attention, self.backward_attention),
                  "-": (self.forward_mlp, self.backward_mlp)}
        residual, mixed, saved = torch.nn.functional.embedding(pack.tokens, self.parameters.copy["embedding"]), None, []
        for layer, symbol in enumerate(self.pattern):
            residual, x, rstd = torch_kernels.norm_forward(residual, mixed, w[f"{layer}.gain"], self.eps)
            mixed, own = layers[symbol][0](layer, x, pack, functions)
            saved.append((residual, x, rstd, own))
        residual, x, rstd = torch_kernels.norm_forward(residual, mixed, w["final.gain"], self.eps)
        logits = x @ self.parameters.copy["head"].t()
        loss = torch_kernels.cross_entropy(logits, pack.targets, pack.scale)
        add_gradient(gradient["head"], logits, x)
        slope, dgain = torch_kernels.norm_backward(residual, rstd, w["final.gain"], logits @ self.parameters.copy["head"], None)
        gradient["final.gain"].add_(dgain)
        for layer in reversed(range(len(self.pattern))):
            residual, x, rstd, own = saved.pop()
            dx = layers[self.pattern[layer]][1](layer, slope, x, own, pack, functions)
            slope, dgain = torch_kernels.norm_backward(residual, rstd, w[f"{layer}.gain"], dx, slope)
            gradient[f"{layer}.gain"].add_(dgain)
        gradient["embedding"].index_add_(0, pack.tokens, slope.float())
        return loss


class Packs:
    """The documents of a step on the device, in memory that graphs keep reading. Rows behind the last document are one more, without
    targets. `capacity`, `longest`: what bounds are padded to, and the longest document that kernels are launched for."""

    def __init__(self, model, microbatches, capacity, longest):
        self.rows, self.device = model.rows, model.device
        self.generator = torch.Generator().manual_seed(11)
        self.vocabulary = model.vocabulary
        sizes = {"tokens": (self.rows, torch.int64), "targets": (self.rows, torch.int64), "position": (self.rows, torch.int32),
                 "document": (self.rows, torch.int32), "bounds": (capacity + 1, torch.int32), "scale": (1, torch.float32)}
        stride = sum((size * dtype.itemsize + 15) // 16 * 16 for size, dtype in sizes.values())
        # One copy brings all of a step.
        self.all_host = torch.zeros(microbatches * stride, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        self.all_own = torch.zeros(microbatches * stride, dtype=torch.uint8, device=self.device)
        self.host, self.own = ([self.views(memory[m * stride:(m + 1) * stride], sizes) for m in range(microbatches)]
                               for memory in (self.all_host, self.all_own))
        for pack in self.own:
            pack.longest = longest

    @staticmethod
    def views(memory, sizes):
        views, place = types.SimpleNamespace(), 0
        for name, (size, dtype) in sizes.items():
            setattr(views, name, memory[place:place + size * dtype.itemsize].view(dtype))
            place += (size * dtype.itemsize + 15) // 16 * 16
        return views

    def draw(self, microbatches):
        """Lays the documents out on the host. microbatches: lengths of documents each."""
        drawn = [[n for n in lengths if n > 0] for lengths in microbatches]
        targets = sum(n - 1 for lengths in drawn for n in lengths)
        for host, lengths in zip(self.host, drawn):
            tail = self.rows - sum(lengths)
            all_lengths = torch.tensor(lengths + [tail] * (tail > 0), dtype=torch.int64)
            ends = all_lengths.cumsum(0)
            host.tokens.random_(self.vocabulary, generator=self.generator)
            host.document.copy_(torch.repeat_interleave(torch.arange(len(all_lengths)), all_lengths))
            host.position.copy_(torch.arange(self.rows) - (ends - all_lengths)[host.document.long()])
            host.targets.copy_(host.tokens.roll(-1))
            host.targets[ends - 1] = -1
            host.targets[self.rows - tail:] = -1
            host.bounds.fill_(self.rows)
            host.bounds[0] = 0
            host.bounds[1:1 + len(ends)] = ends
            host.scale.fill_(1 / max(targets, 1))

    def load(self):
        self.all_own.copy_(self.all_host, non_blocking=True)


def bucket(packs, rows):
    """The least room that all packs fit: multiples of 8 documents and of 512 rows, so that PyTorch's attention wastes little."""
    documents = max(len(lengths) + 1 for step in packs for lengths in step)
    longest = max((n for step in packs for lengths in step for n in [*lengths, rows - sum(lengths)]), default=1)
    return (documents + 7) // 8 * 8, min(rows, (longest + 511) // 512 * 512)


class Mode:
    def __init__(self, name, model, packs, optimizer):
        self.name, self.model, self.packs, self.optimizer = name, model, packs, optimizer
        wrap = (lambda function: function) if name == "eager" or model.device.type == "cpu" else torch.compile
        self.functions = types.SimpleNamespace(squared_relu=wrap(squared_relu), squared_relu_backward=wrap(squared_relu_backward))
        self.graph = None

    def prepare(self):
        for _ in range(WARM_STEPS):
            self.work()
        if self.name in ("graph", "deterministic") and self.model.device.type == "cuda":
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, pool=self.pool()):  # Replays follow each other, and nothing outlives its own.
                self.work()

    @staticmethod
    @functools.cache
    def pool():
        return torch.cuda.graph_pool_handle()

    def work(self):
        torch.use_deterministic_algorithms(self.name == "deterministic")
        torch.utils.deterministic.fill_uninitialized_memory = False
        self.model.parameters.gradients.zero_()
        self.losses = [self.model.microbatch(pack, self.functions).sum() for pack in self.packs.own]
        self.model.parameters.update(self.optimizer)
        torch.use_deterministic_algorithms(False)

    def step(self):
        self.packs.load()
        self.work() if self.graph is None else self.graph.replay()


class Peer:
    def __init__(self, device):
        self.device, self.modes = device, {}

    def begin(self, request):
        model = request["model"]
        why = refusal(model, request["rows"])
        where = torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu"
        if why:
            return {"torch": torch.__version__, "device": where,
                    "modes": [{"mode": name, "not_run": why, "bytes": 0} for name in MODES]}
        self.model = Model(model, request["rows"], self.device)
        packs = Packs(self.model, len(request["packs"][0]), *bucket(request["packs"], request["rows"]))
        packs.draw(request["packs"][0])
        packs.load()
        reply = []
        for name in MODES:
            mode = Mode(name, self.model, packs, request["optimizer"])
            mode.prepare()
            self.modes[name] = mode
            reply.append({"mode": name, "bytes": torch.cuda.memory_reserved() if self.device.type == "cuda" else 0})
        return {"torch": torch.__version__, "device": where, "modes": reply}

    def steps(self, request):
        mode = self.modes[request["mode"]]
        if self.device.type != "cuda":
            started = time.perf_counter()
            seconds = []
            for lengths in request["packs"]:
                mode.packs.draw(lengths)
                begun = time.perf_counter()
                mode.step()
                seconds.append(time.perf_counter() - begun)
            return {"seconds": seconds, "wall_seconds": time.perf_counter() - started}
        torch.cuda.synchronize()
        started, events = time.perf_counter(), []
        for lengths in request["packs"]:
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            mode.packs.draw(lengths)
            pair[0].record()
            mode.step()
            pair[1].record()
            events.append(pair)
            torch.cuda.synchronize()  # The host's copies of the documents are free again.
        return {"seconds": [a.elapsed_time(b) / 1e3 for a, b in events], "wall_seconds": time.perf_counter() - started}


def refusal(model, rows):
    """Why this step cannot run the model; "" if it can."""
    mamba, pattern = model["mamba"], model["pattern"]
    if set(pattern) - set("M*-"):
        return "PyTorch's step has the layers M, * and - alone"
    if model["tied_embedding"] or model["dropout"] or ("-" in pattern and model["mlp"]["activation"] != "squared_relu"):
        return "PyTorch's step has no tied embedding, no dropout and no activation but squared_relu"
    if "M" in pattern:
        sizes = [mamba["head_dim"], mamba["state"], mamba["chunk"]]
        if any(n < 16 or n & (n - 1) for n in sizes) or mamba["groups"] & (mamba["groups"] - 1):
            return "PyTorch's scan has tiles of powers of 2, of 16 and more"
        if mamba["conv_width"] > 4:
            return "PyTorch's convolution reads at most 4 rows: model.mamba.conv_width"
        if rows % mamba["chunk"]:
            return "PyTorch's scan takes whole chunks: data.pack_length must be a multiple of model.mamba.chunk"
    return ""


def serve(peer, requests, replies):
    with open(requests, encoding="utf-8") as asked, open(replies, "w", encoding="utf-8") as told:
        for line in asked:
            request = json.loads(line)
            try:
                reply = {"begin": peer.begin, "steps": peer.steps}[request["op"]](request)
            except (RuntimeError, ValueError, KeyError) as error:
                reply = {"failed": f"{type(error).__name__}: {error}"[:2000]}
            told.write(json.dumps({"id": request["id"], **reply}) + "\n")
            told.flush()


def main():
    device = os.environ.get("LOCKSTEP_PEER_DEVICE", "cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no GPU")
    serve(Peer(torch.device(device)), *(int(fd) for fd in os.environ["LOCKSTEP_ENGINE_FDS"].split(",")))


if __name__ == "__main__":
    main()
