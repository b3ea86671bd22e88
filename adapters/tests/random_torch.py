"""Random scenarios for torch_packed, each under every relation of the Python judge: for a machine with a GPU and without lockstep.

python3 random_torch.py --count 300 --jobs 8 --results FILE; the same line goes on where it stopped: scenarios in FILE are not run again.
Half of the workers start gradients as None, half zeroed. A table of relations comes last; status 1 if one is violated."""
import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from lockstep_adapter import documents  # noqa: E402
from lockstep_adapter.relations import RELATIONS, Judge, NotApplicable, Violated  # noqa: E402
from lockstep_adapter.world import EngineFailure, World  # noqa: E402


def drawn_pack(draw, length, align, gaps):
    """Lengths of documents that fit; empty ones too, and sometimes none at all."""
    lengths, left = [], length
    while draw.random() < 0.85 and len(lengths) < 7:
        most = left // align * align - gaps
        size = 0 if most < 1 or draw.random() < 0.1 else draw.randint(1, draw.choice((most, max(1, most // 3))))
        lengths.append(size)
        left -= -(-(size + gaps) // align) * align if size else 0
    return lengths


def drawn_graphs(draw, pattern):
    impl = draw.choice(("none", "partial", "partial", "full_iteration", "full_iteration"))
    if impl == "none":
        return {}
    capacities = sorted(draw.sample(range(1, 10), draw.randint(1, 3)))
    modules = draw.choice(([], [], ["attn"], ["mlp"], ["attn", "mlp"])) if impl == "partial" else []
    held = {"attn": "*", "mlp": "-"}
    modules = [word for word in modules if held[word] in pattern]
    return {"cuda_graph.impl": impl, "cuda_graph.modules": modules, "cuda_graph.warmup_steps": draw.randint(1, 2),
            "cuda_graph.max_packed_seqs": capacities if len(capacities) > 1 else capacities[0]}


def drawn(seed, number, gpus, ranks):
    draw = random.Random(f"{seed}:{number}")
    pattern = "".join(draw.choice("*-") for _ in range(draw.randint(1, 4)))
    length, align, gaps = 8 * draw.randint(2, 12), draw.choice((1, 1, 2, 4)), draw.choice((0, 0, 1, 3))
    steps, kv_heads = draw.randint(2, 4), draw.randint(1, 2)
    keys = {
        "numerics": [draw.choice(("fp32", "bf16"))], "model.pattern": pattern, "model.hidden": 8 * draw.randint(1, 8),
        "model.vocab": draw.randint(8, 96), "model.attention.kv_heads": kv_heads,
        "model.attention.heads": kv_heads * draw.randint(1, 2), "model.attention.head_dim": 8 * draw.randint(1, 4),
        "model.mlp.hidden": 8 * draw.randint(1, 10), "model.mlp.activation": draw.choice(("squared_relu", "swiglu")),
        "model.tied_embedding": draw.random() < 0.3, "model.recompute": ["mlp_act"] if draw.random() < 0.3 else [],
        "data.pack_length": length, "data.align": align, "data.gaps": gaps, "data.tail": draw.choice(("append_dummy_seq", "extend_last")),
        "data.documents": [[drawn_pack(draw, length, align, gaps) for _ in range(draw.randint(1, 3))] for _ in range(draw.randint(1, 3))],
        "training.steps": steps, "training.microbatches": draw.randint(1, 3), "training.eval_every": draw.choice((0, 0, 1, 2))}
    if draw.random() < 0.2:
        keys["training.change_microbatches_at"] = [{"step": 1, "microbatches": draw.randint(1, 3)}]
    sharded = draw.random() < 0.3
    if sharded:
        keys["fsdp.strategy"] = draw.choice(("optim_grads", "optim_grads_params"))
    keys["parallel.data"] = draw.randint(1, ranks) if sharded or draw.random() < 0.1 else 1
    if gpus and not (sharded and keys["parallel.data"] > 1):
        keys |= drawn_graphs(draw, pattern)
        if sharded and keys.get("cuda_graph.impl") == "partial":
            keys["cuda_graph.impl"] = "full_iteration"
            keys["cuda_graph.modules"] = []
        if keys.get("cuda_graph.impl", "none") != "none" and draw.random() < 0.3:
            keys["training.recapture_at"] = [draw.randint(1, steps - 1)]
    if gpus and keys.get("cuda_graph.impl") != "partial" and draw.random() < 0.4:
        modules = ["qkv_linear", "core_attn"] * ("*" in pattern) + ["mlp_fc1"] * ("-" in pattern)
        keys["offload.modules"] = sorted(draw.sample(modules, draw.randint(1, len(modules))), key=modules.index)
        keys["offload.fraction"] = draw.choice((1, 1, 0.5))
    return keys


def is_expected(relation, keys, grads):
    """pytorch#181723: lockstep_adapter/torch_packed.yaml."""
    counts = [keys["training.microbatches"], *(item["microbatches"] for item in keys.get("training.change_microbatches_at", []))]
    return relation in ("R2", "R11") and grads == "none" and keys.get("cuda_graph.impl") == "partial" and max(counts) > 1


def judged(command, keys, world, grads):
    """relation -> what came out, and whether the world can go on."""
    scenario, results = documents.scenario(**keys), {}
    try:
        with Judge(command, scenario, documents.Feed(scenario), world=world) as judge:
            for relation in RELATIONS:
                try:
                    reason = judge(relation)
                    results[relation] = "holds" if reason is None else f"not applicable: {reason}"
                except Violated as violated:
                    results[relation] = f"{'expected' if is_expected(relation, keys, grads) else 'violated'}: {violated}"
            judge.world.ask("reset", 30)
    except NotApplicable as refused:
        return {"check": f"refused: {refused}"}, True
    except EngineFailure as failure:
        results["engine"] = f"violated: {failure}"
        return results, False
    return results, True


def work(options):
    """Every `jobs`-th scenario that is not in the results."""
    done = set(read_results(options.results))
    grads, worlds, stop = ("none", "zero")[options.worker % 2], {}, time.monotonic() + options.limit_s
    command = f"env PYTHONPATH={HERE.parent} {sys.executable} -m lockstep_adapter.torch_packed --device {options.device} --grads {grads}"
    for number in range(options.worker, options.count, options.jobs):
        if number in done or time.monotonic() > stop:
            continue
        began, keys = time.monotonic(), drawn(options.seed, number, options.device == "cuda", options.ranks)
        ranks = keys["parallel.data"]
        try:
            if ranks not in worlds:
                worlds[ranks] = World(command, ranks)
            results, alive = judged(command, keys, worlds[ranks], grads)
        except EngineFailure as failure:
            results, alive = {"engine": f"violated: {failure}"}, False
        if not alive and ranks in worlds:
            worlds.pop(ranks).close(0)
        line = json.dumps({"number": number, "grads": grads, "seconds": round(time.monotonic() - began, 2), "keys": keys, "results": results})
        with open(options.results, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    for world in worlds.values():
        world.close()


def read_results(path):
    """Scenario -> its line; one that was cut off does not count."""
    found = {}
    if os.path.exists(path):
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                found[entry["number"]] = entry
            except ValueError:
                pass
    return found


def report(entries, count):
    words = ("holds", "not applicable", "expected", "violated")
    counts, bad, shown = collections.defaultdict(collections.Counter), 0, collections.Counter()
    for number, entry in sorted(entries.items()):
        for relation, text in entry["results"].items():
            word = text.split(":")[0]
            counts[relation][word] += 1
            if word == "violated":
                bad += 1
                shown[relation] += 1
                if shown[relation] <= 3:
                    print(f"scenario {number}, --grads {entry['grads']}, {relation}: {text[:300]}\n  {json.dumps(entry['keys'])}")
    print(f"{'relation':10}" + "".join(f"{word:>16}" for word in words))
    for relation in sorted(counts, key=lambda name: list(RELATIONS).index(name) if name in RELATIONS else 99):
        print(f"{relation:10}" + "".join(f"{counts[relation][word]:>16}" for word in words))
    print(f"{len(entries)} of {count} scenarios, {bad} violations that are not expected, "
          f"{sum(entry['seconds'] for entry in entries.values()):.0f} s of work")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1, help="most ranks: as many as there are GPUs")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--limit-s", type=float, default=540)
    parser.add_argument("--results", required=True)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        return work(options)
    workers = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--worker", str(i)]) for i in range(options.jobs)]
    failed = [worker.args for worker in workers if worker.wait()]
    entries = {number: entry for number, entry in read_results(options.results).items() if number < options.count}
    return 1 if report(entries, options.count) or failed else 0


if __name__ == "__main__":
    sys.exit(main())
