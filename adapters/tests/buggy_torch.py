"""lockstep_adapter.torch_packed with one fault each: `python3 buggy_torch.py NAME --device cpu`. FAULTS says what finds it."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch  # noqa: E402
from lockstep_adapter import torch_packed  # noqa: E402
from lockstep_adapter.torch_packed import Graphs, Offload, Pack, Run, TorchPacked, engine_of, local  # noqa: E402
from lockstep_adapter.wire import serve  # noqa: E402


class JoinedDocuments(Pack):
    """The second boundary is lost: two documents attend to each other."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.sequence[self.sequence == 1] = 0
        self.cu_seqlens[1] = self.cu_seqlens[0]


class BoundaryOffByOne(Pack):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.sequence[1:] = self.sequence[:-1].clone()
        inner = self.cu_seqlens[1:]
        inner[inner < len(self.tokens)] += 1


class PaddingHasTargets(Pack):
    def __init__(self, request, *arguments):
        super().__init__(request, *arguments)
        used = torch.zeros(len(self.targets), dtype=torch.bool)
        for begin, end in self.rows:
            used[begin:end] = True
        self.targets[~used.to(self.targets.device)] = request.feed.padding_token


class BakedScale(Pack):
    baked = None

    def __init__(self, *arguments):
        super().__init__(*arguments)
        BakedScale.baked = self.scale.clone() if BakedScale.baked is None else BakedScale.baked
        self.scale = BakedScale.baked


class OverwritesGradients(Run):
    def forward_backward(self, *arguments):
        self.forget_gradients()
        return super().forward_backward(*arguments)


class MaskMultiplies(Run):
    """Rows without a target are scaled by a small number, not left out."""

    def forward_backward(self, pack, callables, watched):
        self.scores = self.model.embedding.weight[pack.tokens].sum(-1)
        return super().forward_backward(pack, callables, watched)

    def total(self, losses, pack):
        return super().total(losses, pack) + 1e-3 * (self.scores * (pack.targets < 0)).sum() * pack.scale


class MeansInsteadOfSums(Run):
    """Shards are divided by the number of ranks, as FSDP2 does by itself."""

    def set_reduction(self, module):
        pass


class LosesAReduction(Run):
    """The last parameter's gradient is summed on rank 0 alone."""

    def reduce(self):
        if self.request.ranks > 1 and self.strategy == "no_shard":
            kept = self.parameters[-1].grad.clone()
            super().reduce()
            if self.request.rank:
                self.parameters[-1].grad.copy_(kept)


class ReducesTwice(Run):
    """Gradients that are sharded already are summed over the ranks once more."""

    def reduce(self):
        super().reduce()
        if self.strategy != "no_shard" and self.request.ranks > 1:
            for parameter in self.parameters:
                local(parameter.grad).mul_(2)


class CountsTheFirstStepTwice(Run):
    """The optimizer of a sharded model takes a step while it is made (Megatron-LM#5974)."""

    def make_optimizer(self):
        optimizer = super().make_optimizer()
        if self.strategy != "no_shard":
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
        return optimizer


class EvaluationTrains(Run):
    def evaluate(self, step):
        super().evaluate(step)
        if self.request.get("training.eval_every"):
            with torch.no_grad():
                self.optimizer.state[self.parameters[0]]["exp_avg"].mul_(0.5)


class EvaluationKeepsWeights(Run):
    """The next evaluation's weights are those that this one gathered (met in torch_packed itself)."""

    def reshard(self):
        pass


class ResumeForgetsTheStep(Run):
    def state_of(self, parameter):
        weight, state = super().state_of(parameter)
        return weight, {**state, "step": torch.zeros_like(state["step"])}


class RecomputesAnother(Run):
    def build(self):
        super().build()
        for block in self.model.blocks:
            for part in block.parts:
                if getattr(part, "again", False):
                    part.activation = lambda h: torch.relu(h).pow(2.0000001)


class StaleInput(Graphs):
    def load(self, inputs, pack):
        kept = inputs.tokens.clone()
        super().load(inputs, pack)
        inputs.tokens.copy_(kept)


class StaleBoundaries(Graphs):
    def load(self, inputs, pack):
        cu_seqlens, sequence = inputs.cu_seqlens.clone(), inputs.sequence.clone()
        super().load(inputs, pack)
        inputs.cu_seqlens.copy_(cu_seqlens)
        inputs.sequence.copy_(sequence)


class StaleScale(Graphs):
    def load(self, inputs, pack):
        kept = inputs.scale.clone()
        super().load(inputs, pack)
        inputs.scale.copy_(kept)


class CaptureLeavesGradients(Graphs):
    def capture(self, pack):
        captured = super().capture(pack)
        self.run.parameters[0].grad.add_(1e-3)
        return captured


class CapacityBaked(Graphs):
    """A graph's table of boundaries has room for two sequences, whatever its capacity."""

    def load(self, inputs, pack):
        size = min(len(inputs.cu_seqlens), len(pack.cu_seqlens))
        for name in pack.NAMES:
            if name != "cu_seqlens":
                getattr(inputs, name).copy_(getattr(pack, name))
        inputs.cu_seqlens[:size].copy_(pack.cu_seqlens[:size])
        inputs.cu_seqlens[2:] = len(pack.tokens)
        inputs.sequence.clamp_(max=1)
        inputs.rows = pack.rows


class NoWait(Offload):
    """The backward pass reads pinned memory without waiting for the copy to it."""

    def wait_for(self, copied):
        pass


def fault(run=Run, pack=None, graphs=None, offload=None):
    parts = {name: part for name, part in (("Pack", pack), ("Graphs", graphs)) if part}
    wrong = type("Wrong", (run,), parts)
    if offload:
        torch_packed.Offload = offload
    return type("Faulty", (TorchPacked,), {"Run": wrong})


TWO = {"parallel.data": 2}
SHARDED = {"parallel.data": 2, "fsdp.strategy": "optim_grads_params"}
WHOLE = {"cuda_graph.impl": "full_iteration", "cuda_graph.max_packed_seqs": 4}
OFFLOADED = {"offload.modules": ["core_attn", "mlp_fc1"], "data.pack_length": 256, "model.hidden": 256,
             "data.documents": [[[100, 1, 90], [50, 0, 120]], [[250], [40, 30, 110]]]}
# Name: (how it is made, what finds it, keys of the scenario, whether it needs a GPU).
FAULTS = {
    "joined-documents": ({"pack": JoinedDocuments}, "R6", {}, False),
    "boundary-off-by-one": ({"pack": BoundaryOffByOne}, "R6", {}, False),
    "padding-has-targets": ({"pack": PaddingHasTargets}, "R7", {}, False),
    "baked-scale": ({"pack": BakedScale}, "R12", {}, False),
    "overwrites-gradients": ({"run": OverwritesGradients}, "R11", {}, False),
    "mask-multiplies": ({"run": MaskMultiplies}, "R7", {}, False),
    "means-instead-of-sums": ({"run": MeansInsteadOfSums}, "R5", SHARDED, False),
    "loses-a-reduction": ({"run": LosesAReduction}, "ranks", TWO, False),
    "reduces-twice": ({"run": ReducesTwice}, "R5", SHARDED, False),
    "counts-the-first-step-twice": ({"run": CountsTheFirstStepTwice}, "R5", {"fsdp.strategy": "optim_grads"}, False),
    "evaluation-trains": ({"run": EvaluationTrains}, "R13", {}, False),
    "resume-forgets-the-step": ({"run": ResumeForgetsTheStep}, "R13", {}, False),
    "recomputes-another": ({"run": RecomputesAnother}, "R4", {"model.recompute": ["mlp_act"]}, False),
    "stale-input": ({"graphs": StaleInput}, "R2", WHOLE, True),
    "stale-boundaries": ({"graphs": StaleBoundaries}, "R2", WHOLE, True),
    "stale-scale": ({"graphs": StaleScale}, "R2", WHOLE, True),
    "capture-leaves-gradients": ({"graphs": CaptureLeavesGradients}, "R2", WHOLE, True),
    "capacity-baked": ({"graphs": CapacityBaked}, "R2", WHOLE, True),
    "evaluation-keeps-weights": ({"run": EvaluationKeepsWeights}, "R2", {**WHOLE, "fsdp.strategy": "optim_grads", "training.eval_every": 1}, True),
    "no-wait": ({"offload": NoWait}, "R14", OFFLOADED, True),
}

if __name__ == "__main__":
    serve(*engine_of(sys.argv[2:], fault(**FAULTS[sys.argv[1]][0])))
