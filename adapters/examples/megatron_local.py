"""Megatron-Core's local spec and its own CUDA graphs (cuda_graph_impl=local) behind the engine protocol; no TransformerEngine.

lockstep fuzz --engine 'python3 adapters/examples/megatron_local.py'. Each symbol of the pattern is a TransformerLayer of its own.
Packs are told apart by a dense mask, and positions restart in each document. It has run with the versions in TRIED, on a GPU."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # Not needed where the package is installed.
from lockstep_adapter import Skipped, serve, slots_in_use, torch_packed  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

TRIED = {"torch": ("2.11.",), "megatron-core": ("0.16.1",)}
EXPECTATIONS = pathlib.Path(__file__).with_suffix(".yaml")


def refuse_untried():
    import megatron.core
    found = {"torch": torch.__version__, "megatron-core": megatron.core.__version__}
    for name, version in found.items():
        if not version.startswith(TRIED[name]):
            sys.exit(f"megatron_local.py ran with {name} {' or '.join(TRIED[name])}, not with {version}")
    return found


class Positions(nn.Module):
    """RoPE's angles for positions that restart in each document, in place of Megatron's, which count the pack's rows."""

    def __init__(self, size, base, device):
        super().__init__()
        self.frequencies = 1 / base ** (torch.arange(0, size, 2, device=device, dtype=torch.float32) / size)
        self.positions = None

    def get_rotary_seq_len(self, *_):
        return len(self.positions)

    def forward(self, _length, **_):
        angles = torch.outer(self.positions.float(), self.frequencies)
        return torch.cat((angles, angles), -1)[:, None, None]


def layer_specs(pattern):
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
    whole = get_gpt_layer_local_spec(normalization="RMSNorm").submodules
    parts = {
        "*": TransformerLayerSubmodules(input_layernorm=whole.input_layernorm, self_attention=whole.self_attention,
                                        self_attn_bda=get_bias_dropout_add),
        "-": TransformerLayerSubmodules(pre_mlp_layernorm=whole.pre_mlp_layernorm, mlp=whole.mlp, mlp_bda=get_bias_dropout_add)}
    layers = [ModuleSpec(module=TransformerLayer, submodules=parts[symbol]) for symbol in pattern]
    return TransformerBlockSubmodules(layer_specs=layers, layer_norm=whole.input_layernorm)


class Megatron(nn.Module):
    """A GPTModel with the calls of torch_packed.Model. Parameters by lockstep's names; `order` of the rows of their lockstep form."""

    def __init__(self, request, device):
        super().__init__()
        from megatron.core.models.gpt.gpt_model import GPTModel
        from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
        from megatron.core.transformer.transformer_config import TransformerConfig
        get, graphs = request.get, request.get("cuda_graph.impl") != "none"
        model_parallel_cuda_manual_seed(1, force_reset_rng=True, use_cudagraphable_rng=graphs)
        gated, dtype = get("model.mlp.activation") == "swiglu", torch.bfloat16 if request.numerics == "bf16" else torch.float32
        self.heads, self.kv_heads, self.size = (get(f"model.attention.{key}") for key in ("heads", "kv_heads", "head_dim"))
        config = TransformerConfig(
            num_layers=len(get("model.pattern")), hidden_size=get("model.hidden"), num_attention_heads=self.heads,
            num_query_groups=self.kv_heads, kv_channels=self.size, ffn_hidden_size=get("model.mlp.hidden"),
            gated_linear_unit=gated, activation_func=nn.functional.silu if gated else lambda x: torch.relu(x).square(),
            normalization="RMSNorm", layernorm_epsilon=get("model.norm_eps"), add_bias_linear=False, hidden_dropout=0.0,
            attention_dropout=0.0, bf16=dtype is torch.bfloat16, params_dtype=dtype, pipeline_dtype=dtype,
            bias_dropout_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False,
            gradient_accumulation_fusion=False, cuda_graph_impl="local" if graphs else "none")
        self.gpt = GPTModel(
            config, layer_specs(get("model.pattern")), vocab_size=get("model.vocab"), max_sequence_length=get("data.pack_length"),
            position_embedding_type="rope", share_embeddings_and_output_weights=get("model.tied_embedding")).to(device, dtype)
        self.gpt.rotary_pos_emb = Positions(self.size, get("model.attention.rope_base"), device)
        self.blocks, self.places, self.order = [], self.places_of(get("model.pattern")), {}
        for i, symbol in enumerate(get("model.pattern")):
            if symbol == "*":
                self.order[f"layers.{i}.qkv.weight"] = self.rows_of_qkv(device)
        with torch.no_grad():
            for name, tensor in request.feed.weights.items():
                value = torch_packed.to_torch(tensor, device)
                self.places[name].copy_(value[self.order[name]] if name in self.order else value)

    def places_of(self, pattern):
        gpt = self.gpt
        places = {"embedding.weight": gpt.embedding.word_embeddings.weight}
        for i, (symbol, layer) in enumerate(zip(pattern, gpt.decoder.layers)):
            if symbol == "*":
                found = {"norm.gain": layer.input_layernorm, "qkv.weight": layer.self_attention.linear_qkv,
                         "proj.weight": layer.self_attention.linear_proj}
            else:
                found = {"norm.gain": layer.pre_mlp_layernorm, "fc1.weight": layer.mlp.linear_fc1, "fc2.weight": layer.mlp.linear_fc2}
            places |= {f"layers.{i}.{name}": module.weight for name, module in found.items()}
        places["final_norm.gain"] = gpt.decoder.final_layernorm.weight
        return places if gpt.share_embeddings_and_output_weights else places | {"head.weight": gpt.output_layer.weight}

    def rows_of_qkv(self, device):
        """Megatron has the query heads of each group before the group's key and value head. Which of lockstep's rows its rows are."""
        each, order = self.heads // self.kv_heads, []
        for group in range(self.kv_heads):
            heads = [*range(group * each, (group + 1) * each), self.heads + group, self.heads + self.kv_heads + group]
            order += [head * self.size + k for head in heads for k in range(self.size)]
        return torch.tensor(order, device=device)

    def parameter(self, name):
        return self.places[name]

    def in_our_rows(self, name, tensor):
        return tensor[self.order[name].argsort()] if name in self.order else tensor

    def forward(self, pack, _callables, _watch):
        row = torch.arange(len(pack.tokens), device=pack.tokens.device)
        seen = (row[:, None] >= row[None]) & (pack.sequence[:, None] == pack.sequence[None])
        self.gpt.rotary_pos_emb.positions = pack.positions
        losses = self.gpt(pack.tokens[None], pack.positions[None], ~seen[None, None], labels=pack.targets.clamp(min=0)[None])
        return torch.where(pack.targets >= 0, losses[0].float(), 0.0)


class Run(torch_packed.Run):
    def build(self):
        forget_graphs()
        self.offload, self.graphs, self.eager, self.created = torch_packed.NoOffload(), None, None, False
        self.model = Megatron(self.request, self.device)
        self.names = list(self.request.feed.weights)
        self.parameters = [self.model.parameter(name) for name in self.names]
        self.optimizer = self.make_optimizer()
        if self.zeroed:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)

    def capacities(self, step, microbatches):
        get = self.request.get
        self.step, slots = step, 0
        for documents in microbatches:
            lengths = [len(document.tokens) for document in documents]
            slots = max(slots, slots_in_use(lengths, get("data.pack_length"), get("data.tail"), get("data.align"), get("data.gaps")))
        if self.impl != "none" and slots > get("cuda_graph.max_packed_seqs"):
            raise Skipped("more slots than max_packed_seqs: Megatron cannot run a layer without its graph once it has one")
        return [None] * len(microbatches)

    def reduce(self):
        """Megatron captures at the end of a step, what it recorded in that step; later steps replay."""
        if self.impl != "none" and not self.created and self.step + 1 >= self.request.get("cuda_graph.warmup_steps"):
            from megatron.core.transformer.cuda_graphs import create_cudagraphs
            torch.cuda.synchronize()
            create_cudagraphs()
            torch.cuda.synchronize()
            self.created = True

    def evaluate(self, step):
        self.model.eval()
        super().evaluate(step)
        self.model.train()

    def tell(self, kind, step, tensor_of):
        named = {id(parameter): name for name, parameter in zip(self.names, self.parameters)}
        super().tell(kind, step, lambda parameter: self.model.in_our_rows(named[id(parameter)], tensor_of(parameter)))


def forget_graphs():
    """Megatron keeps graphs and their buffers in globals."""
    from megatron.core.transformer import cuda_graphs
    cuda_graphs.delete_cuda_graphs()
    pool = cuda_graphs._CudagraphGlobalRecord.tensor_reuse_pool
    for held in (pool.pool, pool.tensor_strong_refs, pool.tensor_strong_refs_dataptrs):
        held.clear()
    torch.cuda.set_stream(torch.cuda.default_stream())


class MegatronLocal(torch_packed.TorchPacked):
    Run = Run

    def hello(self):
        honours = {
            "numerics": ["fp32", "bf16"], "model.pattern": {"symbols": "*-"}, "model.tied_embedding": True, "model.norm_eps": True,
            "model.hidden": {"min": 8, "max": 4096, "multiple_of": 8}, "model.vocab": {"min": 2}, "model.attention.heads": True,
            "model.attention.kv_heads": True, "model.attention.head_dim": {"min": 8, "max": 128, "multiple_of": 8},
            "model.attention.rope_base": True, "model.mlp.hidden": True, "model.mlp.activation": True,
            "data.pack_length": {"max": 2048}, "data.tail": True, "data.align": True, "data.gaps": True,
            "training.microbatches": True, "training.change_microbatches_at": True, "training.eval_every": True,
            "training.optimizer.weight_decay": True, "training.optimizer.betas": True, "training.optimizer.eps": True,
            "cuda_graph.impl": ["none", "partial"], "cuda_graph.warmup_steps": {"min": 1}, "cuda_graph.max_packed_seqs": {"min": 8},
            "feed.empty_documents": True, "feed.empty_packs": True, "feed.loss_scale": True, "feed.learning_rate": True,
            "feed.padding_token": True, "run.resume_at": True}
        found = refuse_untried()
        counts = ("microbatches", "tokens", "targets", "evaluations", "resumes", "graph_replays", "graphs_captured")
        return {
            "engine": {"name": "megatron-local", "version": "1", "torch": found["torch"], "megatron_core": found["megatron-core"],
                       "grads": self.grads},
            "device": {"kind": self.device, "name": torch.cuda.get_device_name(0) if self.device == "cuda" else "CPU"},
            "honours": honours, "observes": ["token_loss", "gradient", "weight", "moment1", "moment2"],
            "claims": {"deterministic": True, "weights_by_name": True},
            "counts": {name: "seen" if name.startswith("graph") else "said" for name in counts},
            "expectations": str(EXPECTATIONS)}

    def check(self, scenario):
        attention = scenario["model"]["attention"]
        if attention["heads"] % attention["kv_heads"]:
            return [{"key": "model.attention.kv_heads", "why": "Megatron divides heads evenly over groups"}]
        return []

    def join(self, request):
        if not torch.distributed.is_initialized():
            from megatron.core import parallel_state
            torch.cuda.set_device(0)
            torch.distributed.init_process_group("nccl", device_id=torch.device("cuda:0"))
            parallel_state.initialize_model_parallel(1, 1)


if __name__ == "__main__":
    refuse_untried()
    serve(*torch_packed.engine_of(sys.argv[1:], MegatronLocal))
