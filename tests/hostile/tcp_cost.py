"""What the protection of the network costs: `lockstep train` of ranks over TCP, one build against another in turns.

python3 tcp_cost.py --old OLD/bin/lockstep --new build/bin/lockstep --pairs 30 [--shapes NAME,...]
Each run of the new build has a key, each of the old one only with --old-key (builds before keys refuse nothing and know none). A line a
shape: medians and quartiles of new over old, of the CPU time of all ranks and of the wall time of the run. Nothing is judged: machines
differ. Shapes whose ranks fit the cores side by side run at once with --jobs."""
import argparse
import concurrent.futures
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from ranks import free_port

SHAPES = {  # pattern, hidden, vocab, rows, strategy, ranks
    "ordinary": ("*-", 64, 256, 256, "optim_grads_params", 2),
    "hybrid": ("M*-", 48, 128, 128, "optim_grads_params", 2),
    "four ranks": ("*-", 48, 128, 128, "optim_grads_params", 4),
    "no sharding": ("*-", 64, 256, 256, "no_shard", 2),
    "exchange-heavy": ("*-", 64, 512, 64, "optim_grads_params", 2),
    "mostly exchange": ("-", 128, 1024, 16, "optim_grads", 2)}


def scenario(name, steps):
    pattern, hidden, vocab, rows, strategy, ranks = SHAPES[name]
    return (f"schema: 1\nname: cost\nnumerics: [fp32]\nmodel: {{pattern: \"{pattern}\", hidden: {hidden}, vocab: {vocab}}}\n"
            f"parallel: {{data: {ranks}, transport: auto}}\nfsdp: {{strategy: {strategy}}}\ndata: {{pack_length: {rows}, documents: [[[{rows // 4}, {rows // 2}], [{rows}]]]}}\n"
            f"training: {{steps: {steps}, microbatches: 2}}\ncuda_graph: {{impl: none}}\n")


def run(program, file, ranks, key):
    """CPU seconds of all ranks, wall seconds and the digest of the weights."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_MEETING")}
    environment.update(WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    if key:
        environment["LOCKSTEP_MEETING_KEY"] = key
    meeting, began = f"127.0.0.1:{free_port()}", time.monotonic()
    processes = [subprocess.Popen([program, "train", "--meeting", meeting, "--quiet", "--device", "sim", str(file)],
                                  env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT) for rank in range(ranks)]
    said, seconds = [], 0.0
    for process in processes:
        said.append(process.stdout.read().decode(errors="replace"))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            raise RuntimeError(f"{program}: status {status}: {said[-1]}")
        seconds += used.ru_utime + used.ru_stime
    return seconds, time.monotonic() - began, [word for word in "".join(said).split() if len(word) == 32]


def measured(name, options):
    rows, ranks = [], SHAPES[name][5]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "cost.yaml"
        file.write_text(scenario(name, options.steps), encoding="utf-8")
        for pair in range(options.pairs):
            pairs = [(options.old, "k" * 32 if options.old_key else None), (options.new, "k" * 32)]
            results = {program: run(program, file, ranks, key) for program, key in (pairs if pair % 2 else reversed(pairs))}
            (old, new) = results[options.old], results[options.new]
            rows.append((new[0] / old[0], new[1] / old[1], old[0], old[1], old[2] == new[2]))
    text = f"{name:16}"
    for column, word in enumerate(("CPU", "wall")):
        low, middle, high = statistics.quantiles([row[column] for row in rows], n=4)
        text += f"  {word} {middle:.3f} ({low:.3f} to {high:.3f})"
    cpu, wall = (statistics.median(row[column] for row in rows) for column in (2, 3))
    return f"{text}  old: {cpu:.2f} s of CPU in {wall:.2f} s; bits {'equal' if all(row[4] for row in rows) else 'DIFFER'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--old-key", action="store_true")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    options = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for line in pool.map(lambda name: measured(name, options), options.shapes.split(",")):
            print(line, flush=True)


if __name__ == "__main__":
    main()
