"""Faults of released packages that the relations find: on a machine with a GPU, PyTorch 2.11 and, for its lines, megatron-fsdp 0.6.1 or
megatron-core 0.16.1 (in PYTHONPATH, one of them alone). Prints for each which relations are violated, and whether these are the ones known.

python3 released_faults.py torch|megatron-fsdp|megatron-local"""
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from lockstep_adapter import documents  # noqa: E402
from lockstep_adapter.relations import RELATIONS, Judge, Violated  # noqa: E402

PACKED = f"env PYTHONPATH={HERE.parent} {sys.executable} -m lockstep_adapter.torch_packed --device cuda"
FSDP, LOCAL = (f"{sys.executable} {HERE.parent}/examples/megatron_{name}.py --device cuda" for name in ("fsdp", "local"))
PARTIAL = {"model.pattern": "*-*-", "numerics": ["bf16"], "cuda_graph.impl": "partial", "training.steps": 4}
SHARDED = {"model.pattern": "*-*-", "training.eval_every": 2}
# What is run: (engine, keys of the scenario, relations that are violated).
CASES = {
    "torch": [
        ("--grads none", PACKED + " --grads none", PARTIAL, {"R2", "R11"}),
        ("--grads zero", PACKED + " --grads zero", PARTIAL, set()),
        ("--grads none, one microbatch", PACKED + " --grads none", {**PARTIAL, "training.microbatches": 1}, set())],
    "megatron-fsdp": [
        *((strategy, FSDP, {**SHARDED, "fsdp.strategy": strategy}, {"R5", "R5b"}) for strategy in ("optim", "optim_grads", "optim_grads_params")),
        ("bf16", FSDP, {**SHARDED, "numerics": ["bf16"], "fsdp.strategy": "optim_grads_params"}, {"R5", "R5b"}),
        ("the first step undone", FSDP + " --first-step undone", {**SHARDED, "fsdp.strategy": "optim_grads_params"}, set())],
    "megatron-local": [
        ("graphs", LOCAL, PARTIAL, {"R2", "R12", "R13"}),
        ("graphs, one layer, fp32", LOCAL, {**PARTIAL, "numerics": ["fp32"], "model.pattern": "*"}, {"R2", "R12", "R13"}),
        ("graphs, evaluation, resume", LOCAL, {**PARTIAL, "model.pattern": "-*", "training.eval_every": 1}, {"R2", "R12", "R13"}),
        ("no graphs", LOCAL, {**PARTIAL, "cuda_graph.impl": "none"}, set())]}


def violated_by(command, keys):
    scenario, found = documents.scenario(**keys), {}
    with Judge(command, scenario, documents.Feed(scenario), deadline_s=120) as judge:
        for relation in RELATIONS:
            try:
                judge(relation)
            except Violated as violated:
                found[relation] = str(violated)
    return found


def main(package):
    wrong = 0
    for name, command, keys, known in CASES[package]:
        began = time.monotonic()
        found = violated_by(command, keys)
        right = set(found) == known
        wrong += not right
        print(f"{'as known' if right else 'NOT AS KNOWN'}  {package}, {name}: {', '.join(sorted(found)) or 'all hold'}"
              f"  ({time.monotonic() - began:.0f} s)", flush=True)
        for relation, text in found.items():
            print(f"    {relation}: {text[:300]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
