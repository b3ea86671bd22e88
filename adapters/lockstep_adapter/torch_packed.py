"""A packed-document transformer in PyTorch behind the engine protocol: python -m lockstep_adapter.torch_packed

Layers `*` and `-`, RMSNorm, RoPE, AdamW on fp32 weights. Attention is varlen_attn in bf16 on a GPU, else scaled_dot_product_attention
with a mask. Eager; CUDA graphs by block, attention or MLP (make_graphed_callables), or of the whole forward and backward pass;
offload of saved activations by hooks; FSDP2. Options: --device cpu|cuda, --grads none|zero (how gradients start in a step)."""
import argparse
import contextlib
import gc
import os
import pathlib
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from .evidence import Evidence, delay, poisoned  # noqa: E402
from .feed import pack_rows, slots_in_use  # noqa: E402
from .torch_tensors import TorchTensor, to_torch  # noqa: E402
from .wire import serve  # noqa: E402

OFFLOADABLE = ("qkv_linear", "core_attn", "mlp_fc1")
COUNTERS = ("microbatches", "tokens", "targets", "evaluations", "recaptures", "resumes", "eager_fallbacks", "max_outstanding",
            "graph_replays", "graphs_captured", "collectives", "bytes_offloaded", "bytes_reloaded")


class Offload:
    """Copies saved activations to pinned memory on a stream of its own and back. A group is one module of one layer."""

    def __init__(self, request, layers, device):
        self.modules, self.min_bytes, self.request = request.get("offload.modules"), request.get("offload.min_bytes"), request
        names = {"*": ("qkv_linear", "core_attn"), "-": ("mlp_fc1",)}
        groups = sum(name in self.modules for symbol in layers for name in names[symbol])
        self.groups = groups - int(groups * (1 - request.get("offload.fraction")) + 1e-9)
        self.out, self.pinned, self.place, self.group = torch.cuda.Stream() if device == "cuda" else None, {}, 0, 0

    def begin(self):
        """Before the forward pass of a microbatch."""
        self.place = self.group = 0
        if self.request.poison and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()
            for buffer in self.pinned.values():
                buffer.fill_(float("nan")) if buffer.is_floating_point() else buffer.fill_(1)

    def end(self):
        torch.cuda.current_stream().wait_stream(self.out)

    def region(self, module):
        if module not in self.modules:
            return contextlib.nullcontext()
        self.group += 1
        if self.group > self.groups:
            return contextlib.nullcontext()
        return torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)

    def pack(self, tensor):
        if isinstance(tensor, nn.Parameter) or tensor.nbytes < max(1, self.min_bytes) or not tensor.is_contiguous():
            return tensor
        if not tensor.is_cuda:  # Such is the seed of an attention kernel.
            return tensor
        key, self.place = (self.place, tuple(tensor.shape), tensor.dtype), self.place + 1
        if key not in self.pinned:
            self.pinned[key] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host = self.pinned[key]
        self.out.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.out):
            delay(self.request.delay_us.get("d2h", 0))
            host.copy_(tensor, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
        tensor.record_stream(self.out)
        return host, copied

    def unpack(self, saved):
        if not isinstance(saved, tuple):
            return saved
        host, copied = saved
        self.wait_for(copied)
        delay(self.request.delay_us.get("h2d", 0))
        return host.to("cuda", non_blocking=True)

    def wait_for(self, copied):
        torch.cuda.current_stream().wait_event(copied)


class NoOffload:
    def begin(self):
        pass

    end = begin

    def region(self, _module):
        return contextlib.nullcontext()


class Weight(nn.Module):
    """One parameter, fp32; a product uses it in the type of the activations."""

    def __init__(self, value, name):
        super().__init__()
        self.name = name
        self.register_parameter(name, nn.Parameter(value))

    def forward(self, x):
        weight = getattr(self, self.name)
        return F.linear(x, weight.to(x.dtype))


class Norm(nn.Module):
    def __init__(self, value, eps):
        super().__init__()
        self.gain, self.eps = nn.Parameter(value), eps

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.gain).to(x.dtype)


class Pack:
    """A microbatch on the device, at fixed addresses: copy_ brings the next one. Sequences: documents and runs of padding rows."""

    NAMES = ("tokens", "targets", "positions", "sequence", "cu_seqlens", "scale")

    def __init__(self, request, documents, step, slots, device):
        length = request.get("data.pack_length")
        lengths = [len(document.tokens) for document in documents]
        self.rows = pack_rows(lengths, length, request.get("data.align"), request.get("data.gaps"))
        tokens, targets = [request.feed.padding_token] * length, [-1] * length
        positions, bounds = list(range(length)), {0, length}
        for (begin, end), document in zip(self.rows, documents):
            tokens[begin:end], targets[begin:end] = document.tokens, document.targets
            bounds |= {begin, end}
        last = max((end for begin, end in self.rows if end > begin), default=0)
        if request.get("data.tail") == "extend_last" and last:
            bounds -= {last} - {length}
        bounds = sorted(bounds)
        sequence = [0] * length
        for number, (begin, end) in enumerate(zip(bounds, bounds[1:])):
            positions[begin:end] = range(end - begin)
            sequence[begin:end] = [number] * (end - begin)
        bounds += [length] * (2 * slots + 3 - len(bounds))  # Room for a run of padding rows behind each slot.
        self.target_count = sum(target >= 0 for target in targets)
        values = (tokens, targets, positions, sequence, bounds)
        for name, value in zip(self.NAMES, values):
            setattr(self, name, torch.tensor(value, dtype=torch.int32 if name == "cu_seqlens" else torch.int64, device=device))
        self.scale = torch.tensor(request.feed.loss_scale[step], dtype=torch.float32, device=device)

    def copy_(self, other):
        for name in self.NAMES:
            getattr(self, name).copy_(getattr(other, name))
        self.rows = other.rows


class Attention(nn.Module):
    def __init__(self, i, weights, request, offload):
        super().__init__()
        self.heads, self.kv_heads = request.get("model.attention.heads"), request.get("model.attention.kv_heads")
        self.size, self.base = request.get("model.attention.head_dim"), request.get("model.attention.rope_base")
        self.norm = Norm(weights[f"layers.{i}.norm.gain"], request.get("model.norm_eps"))
        self.qkv, self.proj = (Weight(weights[f"layers.{i}.{name}.weight"], "weight") for name in ("qkv", "proj"))
        self.offload = offload

    def rotate(self, x, positions):
        half = self.size // 2
        angles = positions.float()[:, None] * self.base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        u, v = x.float().split(half, -1)
        return torch.cat((u * cos - v * sin, v * cos + u * sin), -1).to(x.dtype)

    def core(self, q, k, v, sequence, cu_seqlens):
        repeat = self.heads // self.kv_heads
        k, v = (x.repeat_interleave(repeat, 1) for x in (k, v))
        if q.is_cuda and q.dtype == torch.bfloat16:
            from torch.nn.attention.varlen import varlen_attn
            return varlen_attn(q, k.contiguous(), v.contiguous(), cu_seqlens, cu_seqlens, len(q), len(q), window_size=(-1, 0))
        causal = torch.ones(len(q), len(q), dtype=torch.bool, device=q.device).tril()
        mask = causal & (sequence[:, None] == sequence[None])
        return F.scaled_dot_product_attention(*(x.transpose(0, 1)[None] for x in (q, k, v)), attn_mask=mask)[0].transpose(0, 1)

    def forward(self, x, positions, sequence, cu_seqlens):
        normed = self.norm(x)
        with self.offload.region("qkv_linear"):
            qkv = self.qkv(normed)
        q, k, v = qkv.view(len(x), -1, self.size).split((self.heads, self.kv_heads, self.kv_heads), 1)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        with self.offload.region("core_attn"):
            y = self.core(q, k, v, sequence, cu_seqlens)
        return x + self.proj(y.reshape(len(x), -1))


class Mlp(nn.Module):
    def __init__(self, i, weights, request, offload):
        super().__init__()
        self.norm = Norm(weights[f"layers.{i}.norm.gain"], request.get("model.norm_eps"))
        self.fc1, self.fc2 = (Weight(weights[f"layers.{i}.{name}.weight"], "weight") for name in ("fc1", "fc2"))
        self.gated, self.offload = request.get("model.mlp.activation") == "swiglu", offload
        self.again = "mlp_act" in request.get("model.recompute")

    def activation(self, h):
        if self.gated:
            gate, up = h.chunk(2, -1)
            return F.silu(gate) * up
        return torch.relu(h).square()

    def forward(self, x, *_):
        normed = self.norm(x)
        with self.offload.region("mlp_fc1"):
            h = self.fc1(normed)
        if self.again:
            act = torch.utils.checkpoint.checkpoint(self.activation, h, use_reentrant=False, preserve_rng_state=False)
        else:
            act = self.activation(h)
        return x + self.fc2(act)


class Block(nn.Module):
    """One symbol, or `*-`."""

    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x, positions, sequence, cu_seqlens):
        for part in self.parts:
            x = part(x, positions, sequence, cu_seqlens)
        return x


class Model(nn.Module):
    """The forward pass; `callables` are the parts that may be replaced by graphs."""

    def __init__(self, request, device, offload):
        super().__init__()
        weights = {name: to_torch(tensor, device) for name, tensor in request.feed.weights.items()}
        self.dtype = torch.bfloat16 if request.numerics == "bf16" else torch.float32
        self.embedding, self.places = Weight(weights["embedding.weight"], "weight"), {}
        self.places["embedding.weight"] = self.embedding, "weight"
        pattern, blocks, self.outputs, i = request.get("model.pattern"), [], [], 0
        while i < len(pattern):
            count = 2 if pattern[i : i + 2] == "*-" else 1
            blocks.append(Block([self.part(i + k, pattern[i + k], weights, request, offload) for k in range(count)]))
            i += count
            self.outputs.append(f"layers.{i - 1}.out")
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = Norm(weights["final_norm.gain"], request.get("model.norm_eps"))
        self.places["final_norm.gain"] = self.final_norm, "gain"
        self.head = None if request.get("model.tied_embedding") else Weight(weights["head.weight"], "weight")
        if self.head is not None:
            self.places["head.weight"] = self.head, "weight"

    def part(self, i, symbol, weights, request, offload):
        part = (Attention if symbol == "*" else Mlp)(i, weights, request, offload)
        self.places[f"layers.{i}.norm.gain"] = part.norm, "gain"
        for name in ("qkv", "proj") if symbol == "*" else ("fc1", "fc2"):
            self.places[f"layers.{i}.{name}.weight"] = getattr(part, name), "weight"
        return part

    def parameter(self, name):
        module, attribute = self.places[name]
        return getattr(module, attribute)

    def forward(self, pack, callables, watch):
        """The loss of each row, fp32. `watch(name, tensor)` sees the activations. callables[i]: what runs block i."""
        x = F.embedding(pack.tokens, self.embedding.weight).to(self.dtype)
        for name, runs in zip(self.outputs, callables):
            for run in runs:
                x = run(x, pack.positions, pack.sequence, pack.cu_seqlens)
            watch(name, x)
        x = self.final_norm(x)
        logits = (F.linear(x, self.embedding.weight.to(x.dtype)) if self.head is None else self.head(x)).float()
        watch("logits", logits)
        return F.cross_entropy(logits, pack.targets, reduction="none", ignore_index=-1)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@contextlib.contextmanager
def uncollected():
    """For a capture: a graph of an earlier run that Python's collector destroys meanwhile invalidates it. PyTorch collects beforehand only
    if it is told to (torch.compiler.config.force_cudagraph_gc), and nothing keeps the collector from running during the capture."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Graphs:
    """Graphs of a run, by capacity. Under full_iteration one holds the forward and backward pass of a microbatch."""

    def __init__(self, run):
        self.run, self.held = run, {}

    def drop(self):
        self.held = {}

    def capacity(self, documents):
        """The smallest bucket that holds them, None if none does."""
        get = self.run.request.get
        capacities = get("cuda_graph.max_packed_seqs")
        lengths = [len(document.tokens) for document in documents]
        used = slots_in_use(lengths, get("data.pack_length"), get("data.tail"), get("data.align"), get("data.gaps"))
        return min((c for c in (capacities if isinstance(capacities, list) else [capacities]) if c >= used), default=None)

    def callables(self, capacity, pack):
        """What runs each block: graphs of the parts asked for, captured at the first use of a capacity."""
        if capacity not in self.held:
            graphed, samples, places = [], [], []
            words = self.run.request.get("cuda_graph.modules")
            runs = []
            for block in self.run.model.blocks:
                parts = list(block.parts) if words else [block]
                runs.append(parts)
                for i, part in enumerate(parts):
                    if not words or ("attn" if isinstance(part, Attention) else "mlp") in words:
                        x = torch.zeros(len(pack.tokens), self.run.width, dtype=self.run.model.dtype, device="cuda", requires_grad=True)
                        graphed.append(part)
                        samples.append((x, pack.positions.clone(), pack.sequence.clone(), pack.cu_seqlens.clone()))
                        places.append((len(runs) - 1, i))
            # The parts are called by their graphs alone; wrapped, so that they stay as they are for eager microbatches.
            wrapped = tuple(Wrapped(part) for part in graphed)
            kept = [parameter.grad for parameter in self.run.parameters]  # The sums of this step's earlier microbatches.
            for parameter in self.run.parameters:
                parameter.grad = None
            with uncollected():
                graphs = torch.cuda.make_graphed_callables(wrapped, tuple(samples), allow_unused_input=True)
            for (block, i), graph in zip(places, graphs):
                runs[block][i] = graph
            for parameter, gradient in zip(self.run.parameters, kept):
                parameter.grad = gradient
            self.held[capacity] = runs
        return self.held[capacity]

    def replay(self, capacity, pack):
        """Forward and backward of a microbatch by the graph of its capacity. The losses, and what was watched."""
        if capacity not in self.held:
            self.held[capacity] = self.capture(pack)
        graph, inputs, losses, watched = self.held[capacity]
        self.load(inputs, pack)
        graph.replay()
        return losses, watched

    def load(self, inputs, pack):
        inputs.copy_(pack)

    def capture(self, pack):
        kept = [local(p.grad).clone() for p in self.run.parameters]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.run.forward_backward(pack, self.run.eager, {})
        torch.cuda.current_stream().wait_stream(side)
        graph, watched = torch.cuda.CUDAGraph(), {}
        # As Megatron-Core captures: other threads, such as NCCL's watchdog, may ask about their events meanwhile.
        with uncollected(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            losses = self.run.forward_backward(pack, self.run.eager, watched)
        for parameter, gradient in zip(self.run.parameters, kept):
            local(parameter.grad).copy_(gradient)
        return graph, pack, losses, watched


class Wrapped(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, *inputs):
        return self.part(*inputs)


class Run:
    """One run of a request."""

    Graphs = Graphs
    Pack = Pack

    def __init__(self, request, out, device, grads):
        self.request, self.out, self.device = request, out, device
        self.impl, self.strategy = request.get("cuda_graph.impl"), request.get("fsdp.strategy")
        # A graph of the whole pass writes to gradients at fixed addresses.
        self.zeroed = grads == "zero" or self.impl == "full_iteration"
        self.width, self.pattern = request.get("model.hidden"), request.get("model.pattern")
        self.count = dict.fromkeys(COUNTERS, 0)
        self.build()

    def build(self):
        self.offload = Offload(self.request, self.pattern, self.device) if self.request.get("offload.modules") else NoOffload()
        self.model = Model(self.request, self.device, self.offload)
        if self.strategy != "no_shard":
            self.shard()
        self.names = list(self.request.feed.weights)
        self.parameters = [self.model.parameter(name) for name in self.names]
        self.eager = [[block] for block in self.model.blocks]
        self.optimizer = self.make_optimizer()
        self.graphs = self.Graphs(self)
        if self.zeroed:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)

    def shard(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        again = self.strategy == "optim_grads_params"
        # Without a mesh, fully_shard takes a GPU wherever there is one.
        mesh = init_device_mesh(self.device, (torch.distributed.get_world_size(),))
        for module in [*self.model.blocks, self.model]:
            fully_shard(module, mesh=mesh, reshard_after_forward=again)
            self.set_reduction(module)

    def set_reduction(self, module):
        module.set_gradient_divide_factor(1.0)  # Sums, as the protocol asks for.
        module.set_force_sum_reduction_for_comms(True)

    def make_optimizer(self):
        key, o = {}, self.request.get("training.optimizer")
        for parameter in self.parameters:
            key.setdefault(parameter.dim() == 2, []).append(parameter)
        groups = [{"params": list_of, "weight_decay": o["weight_decay"] if matrix else 0.0} for matrix, list_of in key.items()]
        return torch.optim.AdamW(groups, lr=self.request.feed.learning_rate[0], betas=tuple(map(float, o["betas"])), eps=o["eps"], foreach=False)

    def forget_gradients(self):
        """What a capture left in them."""
        for parameter in self.parameters:
            if self.zeroed:
                local(parameter.grad).zero_()
            else:
                parameter.grad = None

    def steps(self):
        get, feed = self.request.get, self.request.feed
        for step in range(get("training.steps")):
            if step in self.request.resume_at:
                self.resume(step)
            if step in get("training.recapture_at"):
                self.graphs.drop()
                self.count["recaptures"] += 1
            self.forget_gradients()
            microbatches = feed.microbatches("training", step, self.request.rank, self.request.ranks)
            capacities = self.capacities(step, microbatches)
            for m, documents in enumerate(microbatches):
                self.microbatch(step, m, documents, capacities[m], m + 1 == len(microbatches))
            self.reduce()
            self.tell("gradient", step, lambda parameter: parameter.grad)
            for group in self.optimizer.param_groups:
                group["lr"] = feed.learning_rate[step]
            self.optimizer.step()
            self.tell("weight", step, lambda parameter: parameter)
            self.tell("moment1", step, lambda parameter: self.optimizer.state[parameter]["exp_avg"])
            self.tell("moment2", step, lambda parameter: self.optimizer.state[parameter]["exp_avg_sq"])
            self.evaluate(step)

    def capacities(self, step, microbatches):
        """The capacity by which each microbatch is replayed; None: eager."""
        if self.impl == "none" or step < self.request.get("cuda_graph.warmup_steps"):
            return [None] * len(microbatches)
        found = [self.graphs.capacity(documents) for documents in microbatches]
        if self.impl == "full_iteration" and None in found:
            self.count["eager_fallbacks"] += 1
            return [None] * len(found)
        self.count["eager_fallbacks"] += found.count(None)
        return found

    def microbatch(self, step, m, documents, capacity, last):
        self.out.phase(f"step {step}, microbatch {m}" + ("" if capacity is None else f", capacity {capacity}"))
        slots = len(documents) + 1 if capacity is None else capacity
        pack, watched = self.Pack(self.request, documents, step, slots, self.device), {}
        if self.device == "cuda":
            delay(self.request.delay_us.get("compute", 0))
        if capacity is not None and self.impl == "full_iteration":
            losses, watched = self.graphs.replay(capacity, pack)
        else:
            callables = self.eager if capacity is None else self.graphs.callables(capacity, pack)
            losses = self.forward_backward(pack, callables, watched)
        self.count["microbatches"] += 1
        self.count["tokens"] += sum(end - begin for begin, end in pack.rows)
        self.count["targets"] += pack.target_count  # A number that a GPU is asked for is copied to pinned memory: not an offload.
        self.count["max_outstanding"] = 1
        self.out.rows(step, m, pack.rows)
        self.out.tensor("token_loss", "token_loss", lambda: TorchTensor(losses), step, m)
        for name in watched:
            self.out.tensor("activation", name, lambda name=name: TorchTensor(watched[name]), step, m)

    def forward_backward(self, pack, callables, watched):
        self.offload.begin()

        def watch(name, tensor):
            if self.out.wants("activation"):
                watched[name] = tensor.detach().clone()

        losses = self.model(pack, callables, watch)
        self.total(losses, pack).backward()
        self.offload.end()
        return losses.detach()

    def total(self, losses, pack):
        return torch.where(pack.targets >= 0, losses, torch.zeros_like(losses)).sum() * pack.scale

    def reduce(self):
        if self.strategy == "no_shard" and self.request.ranks > 1:
            for parameter in self.parameters:
                torch.distributed.all_reduce(parameter.grad)

    def evaluate(self, step):
        microbatches = self.request.feed.microbatches("evaluation", step, self.request.rank, self.request.ranks)
        self.count["evaluations"] += bool(microbatches)
        for m, documents in enumerate(microbatches):
            pack = self.Pack(self.request, documents, step, len(documents) + 1, self.device)
            with torch.no_grad():
                losses = self.model(pack, self.eager, lambda *_: None)
            self.out.rows(step, m, pack.rows, "evaluation")
            self.out.tensor("token_loss", "token_loss", lambda: TorchTensor(losses), step, m, "evaluation")
        if microbatches and self.strategy != "no_shard":
            self.reshard()

    def reshard(self):
        """Without a backward pass FSDP2 keeps gathered weights. Where a replay takes the place of a step's forward pass, nothing would
        gather them again before the next evaluation, which would be one of old weights."""
        for module in [*self.model.blocks, self.model]:
            module.reshard()

    def tell(self, kind, step, tensor_of):
        if self.out.wants(kind):
            for name, parameter in zip(self.names, self.parameters):
                tensor = whole(tensor_of(parameter)).detach()
                self.out.tensor(kind, name, lambda: TorchTensor(tensor), step)

    def resume(self, step):
        """Saves weights and moments, builds everything anew, and loads them."""
        path = os.path.join(self.request.folder, f"state-{step}")
        torch.save([self.state_of(parameter) for parameter in self.parameters], path)
        del self.model, self.optimizer, self.parameters, self.graphs, self.eager
        self.build()
        for parameter, (weight, state) in zip(self.parameters, torch.load(path)):
            with torch.no_grad():
                local(parameter).copy_(weight)
            self.optimizer.state[parameter] = {name: self.like(parameter, value) for name, value in state.items()}
        os.remove(path)
        self.count["resumes"] += 1

    def state_of(self, parameter):
        return local(parameter.detach()), {name: local(value) for name, value in self.optimizer.state[parameter].items()}

    def like(self, parameter, value):
        """The moments of a sharded weight are sharded as it is; the step is a number."""
        if value.dim() == 0 or not hasattr(parameter, "to_local"):
            return value
        tensor = torch.zeros_like(parameter)
        tensor.to_local().copy_(value)
        return tensor


class TorchPacked:
    """What `serve` wants of an engine."""

    Run = Run

    def __init__(self, device, grads="zero"):
        self.device, self.grads = device, grads
        torch.use_deterministic_algorithms(True)
        if device == "cpu":
            torch.set_num_threads(1)

    def hello(self):
        cuda = self.device == "cuda"
        honours = {
            "numerics": ["fp32", "bf16"], "model.pattern": {"symbols": "*-"}, "model.tied_embedding": True, "model.norm_eps": True,
            "model.hidden": {"min": 8, "max": 4096, "multiple_of": 8}, "model.vocab": {"min": 2}, "model.attention.heads": True,
            "model.attention.kv_heads": True, "model.attention.head_dim": {"min": 8, "max": 128, "multiple_of": 8},
            "model.attention.rope_base": True, "model.mlp.hidden": True, "model.mlp.activation": True,
            "model.recompute": ["mlp_act"], "data.pack_length": {"max": 8192}, "data.tail": True, "data.align": True,
            "data.gaps": True, "training.microbatches": True, "training.change_microbatches_at": True,
            "training.eval_every": True, "training.optimizer.weight_decay": True, "training.optimizer.betas": True,
            "training.optimizer.eps": True, "fsdp.strategy": ["no_shard", "optim_grads", "optim_grads_params"],
            "parallel.data": {"min": 1, "max": torch.cuda.device_count() if cuda else 4}, "feed.empty_documents": True,
            "feed.empty_packs": True, "feed.loss_scale": True, "feed.learning_rate": True, "feed.padding_token": True,
            "run.resume_at": True}
        if cuda:
            honours |= {
                "cuda_graph.impl": ["none", "partial", "full_iteration"], "cuda_graph.modules": ["attn", "mlp"],
                "cuda_graph.warmup_steps": {"min": 1}, "cuda_graph.max_packed_seqs": {"min": 1, "items": 8},
                "training.recapture_at": True, "offload.modules": list(OFFLOADABLE), "offload.fraction": True,
                "offload.min_bytes": True}
        seen = {"graph_replays", "graphs_captured", "collectives", "bytes_offloaded", "bytes_reloaded"}
        return {
            "engine": {"name": "torch-packed", "version": "1", "torch": torch.__version__, "grads": self.grads},
            "device": {"kind": self.device, "name": torch.cuda.get_device_name(0) if cuda else "CPU"},
            "honours": honours, "observes": ["token_loss", "activation", "gradient", "weight", "moment1", "moment2"],
            "claims": {"deterministic": True, "weights_by_name": True, "recompute_exact": True},
            "counts": {name: "seen" if name in seen else "said" for name in COUNTERS},
            "amplifies": ["poison", "delay"] if cuda else ["poison"], "delays": ["compute", "d2h", "h2d"] if cuda else [],
            "expectations": str(pathlib.Path(__file__).with_suffix(".yaml"))}

    def check(self, scenario):
        """Refusals of combinations that no single key forbids."""
        graph, refused = scenario["cuda_graph"]["impl"], []
        if scenario["offload"]["modules"] and graph == "partial":
            refused.append({"key": "offload.modules", "why": "hooks cannot stand inside make_graphed_callables"})
        if scenario["fsdp"]["strategy"] != "no_shard" and graph == "partial":
            refused.append({"key": "fsdp.strategy", "why": "make_graphed_callables takes no FSDP module"})
        if scenario["fsdp"]["strategy"] != "no_shard" and graph == "full_iteration" and scenario["parallel"]["data"] > 1:
            refused.append({"key": "cuda_graph.impl", "why": "collectives inside of the graph are not tried"})
        return refused

    def run(self, request, out):
        self.join(request)
        with Evidence() as evidence, poisoned(request.poison):
            run = self.Run(request, out, self.device, self.grads)
            run.steps()
            if self.device == "cuda":
                torch.cuda.synchronize()
        return {**run.count, "graph_replays": evidence.replays, "graphs_captured": evidence.captures,
                "collectives": evidence.collectives, "bytes_offloaded": evidence.offloaded, "bytes_reloaded": evidence.reloaded}

    def join(self, request):
        needed = request.ranks > 1 or request.get("fsdp.strategy") != "no_shard"
        if needed and not torch.distributed.is_initialized():
            if self.device == "cuda":
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            torch.distributed.init_process_group("nccl" if self.device == "cuda" else "gloo")

    def reset(self):
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return False


def engine_of(arguments, engine=TorchPacked):
    parser = argparse.ArgumentParser(prog="lockstep_adapter.torch_packed")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--grads", choices=("none", "zero"), default="zero")
    known, rest = parser.parse_known_args(arguments)
    return engine(known.device, known.grads), rest


if __name__ == "__main__":
    serve(*engine_of(sys.argv[1:]))
