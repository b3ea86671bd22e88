"""Megatron-Core 0.16.0 to 0.17.1, cuda_graph_impl=local: the first norm's gradient is lost from the first replay on, silently.

create_fwd_graph gives the buffer of the first layer's input back to TensorReusePool once the forward graph is captured, and
create_bwd_graph takes it from there as the buffer of an output gradient. So a replay overwrites the input that the norm's backward
needs. Without the giving back all gradients equal eager's. Removed in 0.18.0 (PR#4433). Run: python3 megatron_local_reduced.py"""
import os

os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555", "RANK": "0", "WORLD_SIZE": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import gpt_layer_specs, gpt_model
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig, cuda_graphs

torch.distributed.init_process_group("nccl", device_id=torch.device("cuda:0"))
parallel_state.initialize_model_parallel(1, 1)

def gradients(impl):
    model_parallel_cuda_manual_seed(1, force_reset_rng=True, use_cudagraphable_rng=True)
    cuda_graphs.delete_cuda_graphs()
    config = TransformerConfig(num_layers=1, hidden_size=64, num_attention_heads=4, bf16=True, params_dtype=torch.bfloat16, normalization="RMSNorm", hidden_dropout=0,
                               attention_dropout=0, persist_layer_norm=False, gradient_accumulation_fusion=False, cuda_graph_impl=impl)
    model = gpt_model.GPTModel(config, gpt_layer_specs.get_gpt_layer_local_spec(normalization="RMSNorm"), 128, 32, position_embedding_type="rope").cuda().bfloat16()
    tokens = torch.arange(32, device="cuda")[None]
    for step in range(2):  # Step 0 records, step 1 replays; the weights stay.
        model.zero_grad()
        model(tokens, tokens, None, labels=tokens * 5 % 128).mean().backward()
        cuda_graphs.create_cudagraphs()
    runners = [runner for layer in model.decoder.layers for runner in getattr(layer, "cudagraph_manager", layer).__dict__.get("cudagraph_runners", [])]
    shared = any(i.data_ptr() == o.data_ptr() for r in runners for i in r.fwd_graph_input_surface[: r.num_dgrads] for o in r.static_grad_outputs if o is not None)
    return {name: p.grad.float() for name, p in model.named_parameters()}, shared

eager, as_shipped = gradients("none")[0], gradients("local")
cuda_graphs.TensorReusePool.insert = lambda self, tensor: None  # Nothing is given back.
for text, (graphed, shared) in (("as shipped", as_shipped), ("nothing given back", gradients("local"))):
    print(text, "| an input shares memory with an output's gradient:", shared, "| relative errors:",
          {name: round(float((eager[name] - g).norm() / eager[name].norm()), 4) for name, g in graphed.items() if not torch.equal(g, eager[name])} or "none")
