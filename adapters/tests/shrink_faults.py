"""Each fault of buggy_torch.py, and each of the released packages, by lockstep itself: found by `lockstep fuzz --engine` from a seed,
shrunk by `lockstep shrink`, and the smallest scenario replayed.

python3 shrink_faults.py --lockstep build/bin/lockstep --device cuda --jobs 6 --out FOLDER [NAME...]
Faults that need no GPU run on the CPU. The released ones are torch, megatron-fsdp and megatron-local; the packages of the last two lie in
the folders $MEGATRON_FSDP and $MEGATRON_CORE, each alone. A table comes last. Exit status 1: one was not found within --find-s seconds,
has more than two documents when shrunk, or its replay held."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

from buggy_torch import FAULTS

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
RELEASED = ("torch", "megatron-fsdp", "megatron-local")


def engine_of(name, device):
    """The command of one rank of the engine that has the fault."""
    paths = [str(HERE.parent)]
    if name == "torch":
        words = ["-m", "lockstep_adapter.torch_packed", "--device", "cuda", "--grads", "none"]
    elif name in RELEASED:
        paths.append(os.environ[{"megatron-fsdp": "MEGATRON_FSDP", "megatron-local": "MEGATRON_CORE"}[name]])
        words = [str(EXAMPLES / f"{name.replace('-', '_')}.py"), "--device", "cuda"]
    else:
        words = [str(HERE / "buggy_torch.py"), name, "--device", device if FAULTS[name][3] else "cpu"]
    return shlex.join(["env", "PYTHONPATH=" + ":".join(paths), sys.executable, *words])


def documents_in(lockstep, path):
    """How many documents the scenario of a file has: those of its list of lengths, or else those that it draws."""
    said = path.with_suffix(".json")
    subprocess.run([lockstep, "describe", str(path), "--json", str(said)], stdout=subprocess.DEVNULL, check=True)
    described = json.loads(said.read_text(encoding="utf-8"))
    data = described["scenario"]["data"]
    if data["kind"] != "lengths":
        return described["documents"]
    return sum(len(microbatch) for step in data["documents"] for microbatch in step)


def run(log, *words):
    began = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        status = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    return status, time.monotonic() - began


def tried(name, options):
    """A row of the table, and whether all is well."""
    folder = pathlib.Path(options.out) / name
    folder.mkdir(parents=True, exist_ok=True)
    engine = ["--engine", engine_of(name, options.device)]
    if name in RELEASED:
        known = folder / "nothing-is-known.yaml"
        known.write_text("version: 1\nexpected: []\n", encoding="utf-8")
        engine += ["--expect-failures", str(known)]
    status, seconds = run(folder / "fuzz.log", options.lockstep, "fuzz", *engine, "--seed", str(options.seed), "--budget",
                          str(options.find_s), "--stop-after", "1", "--corpus", str(folder / "corpus"), "--quiet")
    found = sorted((folder / "corpus").glob("*.yaml"))
    if status != 1 or not found:
        return f"{name:32} not found in {seconds:.0f} s (status {status})", False
    row = f"{name:32} found in {seconds:4.0f} s by {found[0].name.split('-')[0].upper():5}"
    small = folder / "small.yaml"
    relation = re.match(r"r\d+[a-z]?(?=-)", found[0].name)
    known = ["--relation", relation[0][0].upper() + relation[0][1:]] if relation else []
    _, seconds = run(folder / "shrink.log", options.lockstep, "shrink", str(found[0]), *engine, *known, "--budget",
                     str(options.shrink_s), "-o", str(small))
    if not small.exists():
        return f"{row} did not shrink", False
    ended = "the budget ended first" not in small.read_text(encoding="utf-8")
    documents = documents_in(options.lockstep, small)
    status, _ = run(folder / "replay.log", options.lockstep, "replay", str(small), *engine)
    row += f" shrunk in {seconds:4.0f} s{'' if ended else ' (budget)':9} documents {documents}  replay {status}"
    return row, documents <= 2 and status == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*FAULTS, *RELEASED])}; all of buggy_torch.py's if none")
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--find-s", type=float, default=300)
    parser.add_argument("--shrink-s", type=float, default=300)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    names = options.names or [name for name, fault in FAULTS.items() if options.device == "cuda" or not fault[3]]
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(tried, name, options) for name in names]):
            row, right = done.result()
            wrong += not right
            print(row if right else f"{row}  WRONG", flush=True)
    print(f"{len(names) - wrong} of {len(names)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
