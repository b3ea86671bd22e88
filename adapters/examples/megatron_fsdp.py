"""Megatron-FSDP (the package of its own) behind the engine protocol, around the model of lockstep_adapter.torch_packed.

lockstep fuzz --engine 'python3 adapters/examples/megatron_fsdp.py'. Under fsdp.strategy no_shard nothing of Megatron-FSDP takes part: so
R5 compares it with plain PyTorch. It has run with the versions in TRIED, on one GPU. `--first-step undone` takes back the step of
the optimizer that megatron-fsdp 0.6.1 makes of its own accord: then R5 holds."""
import importlib.metadata
import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve()
sys.path = [folder for folder in sys.path if pathlib.Path(folder).resolve() != HERE.parent]  # This file has the package's name.
sys.path.insert(0, str(HERE.parents[1]))  # Not needed where the package is installed.
from lockstep_adapter import serve, torch_packed  # noqa: E402

import torch  # noqa: E402

TRIED = {"torch": ("2.11.",), "megatron-fsdp": ("0.6.1",)}
EXPECTATIONS = HERE.with_suffix(".yaml")


def refuse_untried():
    found = {"torch": torch.__version__, "megatron-fsdp": importlib.metadata.version("megatron-fsdp")}
    for name, version in found.items():
        if not version.startswith(TRIED[name]):
            sys.exit(f"megatron_fsdp.py ran with {name} {' or '.join(TRIED[name])}, not with {version}")
    if importlib.util.find_spec("megatron") and importlib.util.find_spec("megatron.core"):
        sys.exit("megatron-fsdp 0.6.1 takes the configuration class of a megatron-core that it finds, and fails with the one of 0.16.1: "
                 "use an environment without megatron-core")
    return found


class Run(torch_packed.Run):
    def shard(self):
        from megatron_fsdp import fully_shard_model
        model = self.model
        self.model = fully_shard_model(model, fsdp_unit_modules=[torch_packed.Block], zero_dp_strategy=self.strategy,
                                       calculate_per_token_loss=True)  # Gradients are sums, as the protocol asks for.
        self.model.blocks, self.model.parameter = list(model.blocks), model.parameter

    def reshard(self):
        pass  # No graph is captured here: each forward pass gathers the weights itself.

    def make_optimizer(self):
        optimizer = super().make_optimizer()
        if self.strategy != "no_shard":
            from megatron_fsdp import fully_shard_optimizer
            rates = [group["lr"] for group in optimizer.param_groups]
            if self.undone:  # Without a rate the weights do not decay.
                for group in optimizer.param_groups:
                    group["lr"] = 0.0
            optimizer = fully_shard_optimizer(optimizer)
            if self.undone:
                for group, rate in zip(optimizer.param_groups, rates):
                    group["lr"] = rate
                for state in optimizer.state.values():
                    state["step"].zero_()
        return optimizer

    def forget_gradients(self):
        if self.strategy == "no_shard":
            super().forget_gradients()
        else:
            self.optimizer.zero_grad()

    def tell(self, kind, step, tensor_of):
        super().tell(kind, step, lambda parameter: whole(tensor_of(parameter)))


def whole(tensor):
    if not hasattr(tensor, "to_local"):
        return tensor
    from megatron_fsdp.uneven_dtensor import uneven_dtensor_to_full_tensor
    return uneven_dtensor_to_full_tensor(tensor.detach())


class MegatronFsdp(torch_packed.TorchPacked):
    Run = Run

    def __init__(self, device, grads, undone=False):
        super().__init__(device, "none")
        self.Run = type("Run", (Run,), {"undone": undone})

    def hello(self):
        found, answer = refuse_untried(), super().hello()
        left_out = ("cuda_graph.", "offload.", "run.resume_at", "training.recapture_at", "model.recompute")
        honours = {key: value for key, value in answer["honours"].items() if not key.startswith(left_out)}
        honours |= {"fsdp.strategy": ["no_shard", "optim", "optim_grads", "optim_grads_params"], "parallel.data": {"min": 1, "max": 1}}
        counts = {name: how for name, how in answer["counts"].items() if "graph" not in name and "bytes" not in name}
        return answer | {
            "engine": {"name": "megatron-fsdp", "version": "1", "torch": found["torch"], "megatron_fsdp": found["megatron-fsdp"]},
            "honours": honours, "counts": counts, "amplifies": ["poison"], "expectations": str(EXPECTATIONS)}


if __name__ == "__main__":
    refuse_untried()
    undone = "--first-step" in sys.argv and sys.argv[sys.argv.index("--first-step") + 1 :][:1] == ["undone"]
    arguments = [word for word in sys.argv[1:] if word not in ("--first-step", "undone")]
    serve(*torch_packed.engine_of(arguments, lambda device, grads: MegatronFsdp(device, grads, undone)))
