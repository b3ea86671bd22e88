"""Scenarios for lockstep's own engine behind the wire (`lockstep engine`): together they ask for all that it honours."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lockstep_adapter import documents  # noqa: E402

# Packs of several documents, a long one, empty ones, and one with more slots than most capacities below.
LAYOUTS = [[[7, 1, 9], [5, 0, 12], [30], [2, 2, 2, 2, 2]], [[20], [4, 3, 11], [1, 0, 16], [8, 8, 8]]]
GRAPHS = {"cuda_graph.impl": "partial", "cuda_graph.warmup_steps": 1, "training.in_flight": 2, "training.steps": 5}
SEVERAL = {"data.documents": LAYOUTS, "training.microbatches": 4}
ATTENTION = ["qkv_linear", "core_attn", "attn_proj"]


def scenario(keys):
    return documents.scenario(**{**SEVERAL, **keys})


def scenarios():
    """name -> scenario."""
    return {
        "graphs": scenario({**GRAPHS,
            "numerics": ["bf16"], "model.pattern": "M*-", "cuda_graph.max_packed_seqs": [3, 4], "training.eval_every": 2,
            "cuda_graph.evaluation": "replay",
            "training.recapture_at": [3], "data.gaps": 1, "data.align": 4, "data.pack_length": 48, "model.dropout": 0.25}),
        "offload": scenario({**GRAPHS,
            "model.pattern": "M*-*", "offload.modules": [*ATTENTION, "mlp_fc1", "mamba_in_proj", "mamba_scan"],
            "offload.max_inflight": 2, "training.in_flight": 3, "data.tail": "append_dummy_seq"}),
        "offload in graphs": scenario({**GRAPHS,
            "numerics": ["bf16"], "model.pattern": "*-*-", "offload.captured": True,
            "offload.modules": ["qkv_linear", "core_attn", "mlp_fc1"], "training.in_flight": 4}),
        "eager": scenario({
            "model.pattern": "MM-*", "model.recompute": ["layernorm", "core_attn", "mlp", "mamba"],
            "offload.modules": ["core_attn"], "training.steps": 4, "training.eval_every": 1, "training.optimizer.clip": 0.05, "model.tied_embedding": True,
            "training.change_microbatches_at": [{"step": 2, "microbatches": 2}]}),
        "long": scenario({
            "model.pattern": "*-", "model.tied_embedding": True, "training.steps": 12, "training.microbatches": 2,
            "training.optimizer.eps": 1e-3, "training.optimizer.weight_decay": 0.1}),
        "experts": scenario({**GRAPHS,
            "model.pattern": "*E-", "model.moe.experts": 3, "model.moe.top_k": 1, "training.eval_every": 2,
            "cuda_graph.modules": ["attn", "moe_router"], "offload.modules": ["core_attn", "expert_fc1", "moe_act"],
            "offload.delay_until_cuda_graph": True, "model.moe.aux_loss": 0.01}),
        "shards": scenario({**GRAPHS,
            "numerics": ["bf16"], "model.pattern": "M-*-", "fsdp.strategy": "optim_grads_params", "fsdp.unit": 1}),
        "fp8": scenario({**GRAPHS,
            "numerics": ["fp8"], "model.pattern": "M*-", "model.hidden": 32, "model.mlp.hidden": 48, "training.eval_every": 2}),
        "fp8, delayed": scenario({**GRAPHS,
            "numerics": ["fp8"], "model.pattern": "M*-", "model.hidden": 32, "model.mlp.hidden": 48, "fp8.recipe": "delayed",
            "fp8.history": 2, "fsdp.strategy": "optim_grads", "training.eval_every": 2}),
        "shards, eager": scenario({
            "model.pattern": "*-E", "model.recompute": ["mlp_act", "moe"], "fsdp.strategy": "optim_grads",
            "fsdp.double_buffer": False, "training.steps": 3}),
    }
