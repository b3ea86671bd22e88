#!/usr/bin/env python3
"""Commands with which lockstep was once attacked, each with the exit status and the words that it must give.

  commands.py --lockstep PATH [--only NAME] [--list]

Each runs in a folder of its own with little address space and time. A line for each that is wrong; exit status 1 then.
"""
import argparse
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import zlib

BASE = "schema: 1\nname: base\n"
TRAIN = BASE + "training: {steps: 3, microbatches: 1}\n"
RANKS = BASE + "parallel: {data: 2, transport: auto}\nfsdp: {strategy: optim_grads_params}\ntraining: {steps: 2}\n"
JSONL = 'data: {kind: jsonl, path: DATA.jsonl}\n'
COMMANDS = []


def command(status, words, line, files=None, unchanged=(), check=None, environment=None, **more):
    """Declares a command: `files` are made and `before` runs before it; `unchanged` files must be the same after it."""
    COMMANDS.append(dict(status=status, words=words, line=line, files=files or {}, unchanged=unchanged, check=check,
                         environment=environment or {}, **more))


def safetensors(metadata, tensors=(), data=b"", right=True):
    """A checkpoint with a right checksum, of tensors (name, shape, begin, end)."""
    words = "".join(f"{key}={value}\n" for key, value in sorted(metadata.items())).encode()
    metadata = dict(metadata)
    if right:
        metadata["crc32"] = str(zlib.crc32(data, zlib.crc32(words)))
    header = {"__metadata__": metadata}
    for name, shape, begin, end in tensors:
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


# 3 and 12: a checkpoint from a stranger.
FAR = "/../" + "./" * 18 + "VICTIM"
command(0, "", "train --quiet --device sim a.yaml --steps 3 --checkpoint ck/vic", name="index-deletes-a-file",
        files={"a.yaml": RANKS, "ck/VICTIM": "precious", "ck/vic./x": "", "ck/vic": safetensors({"set": FAR, "ranks": "1"})},
        unchanged=["ck/VICTIM"], any_status=True)
command(3, "lockstep: c", "train --quiet --device sim a.yaml --resume c", name="index-of-all-ranks",
        files={"a.yaml": TRAIN, "c": safetensors({"set": "a", "ranks": "2147483647"})})
command(3, "is not a regular file", "train --quiet --device sim a.yaml --resume fifo", name="checkpoint-of-a-pipe",
        files={"a.yaml": TRAIN, "fifo": None})
command(3, "is not a regular file", "train --quiet --device sim a.yaml --resume /dev/zero", name="checkpoint-of-a-device",
        files={"a.yaml": TRAIN})
command(3, "is not a regular file", "train --quiet --device sim a.yaml --resume .", name="checkpoint-of-a-folder",
        files={"a.yaml": TRAIN})
command(3, "has a size that no tensor has", "train --quiet --device sim a.yaml --resume c", name="shape-that-wraps",
        files={"a.yaml": TRAIN, "c": safetensors({}, [("w", [2**31, 2**31, 4], 0, 0)])})
command(3, "an overlap", "train --quiet --device sim a.yaml --resume c", name="tensors-that-overlap",
        files={"a.yaml": TRAIN, "c": safetensors({}, [("w", [1], 0, 4), ("x", [1], 0, 4)], b"\0" * 4)})

# 5: outputs over inputs and over each other.
command(2, "in.yaml", "verify in.yaml --device sim --json in.yaml", name="report-over-scenario", files={"in.yaml": BASE},
        unchanged=["in.yaml"])
command(2, "in.yaml", "describe in.yaml --json in.yaml", name="description-over-scenario", files={"in.yaml": BASE},
        unchanged=["in.yaml"])
command(2, "in.yaml", "train in.yaml --device sim --checkpoint in.yaml", name="checkpoint-over-scenario",
        files={"in.yaml": TRAIN}, unchanged=["in.yaml"])
command(2, "DATA.jsonl", "train d.yaml --device sim --checkpoint DATA.jsonl", name="checkpoint-over-data",
        files={"d.yaml": TRAIN + JSONL, "DATA.jsonl": '{"text": "A record."}\n'}, unchanged=["DATA.jsonl"])
command(2, "X", "train a.yaml --device sim --checkpoint X --json X", name="report-over-checkpoint", files={"a.yaml": TRAIN})
command(2, "S", "verify a.yaml --device sim --json S --junit S", name="report-over-report", files={"a.yaml": BASE})
command(2, "it stays", "train --quiet --device sim --meeting ./keep a.yaml", name="meeting-over-a-file",
        files={"a.yaml": RANKS, "keep": "precious"}, unchanged=["keep"],
        environment={"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
command(None, "L.state", "fuzz --device sim --count 1 --jobs 1 --log L", name="campaign-over-a-folder",
        files={"L.state/mine": "precious"}, unchanged=["L.state/mine"], fails=True)
command(0, "", "verify --quiet a.yaml --device sim --json r.json", name="report-beside-a-file-of-its-name",
        files={"a.yaml": BASE, "r.json.tmp.999999": "precious"}, unchanged=["r.json.tmp.999999"])
command(2, "--meeting", "train --quiet --device sim --meeting 127.0.0.1:1 a.yaml", name="meeting-without-a-launcher",
        files={"a.yaml": RANKS})

# 7 and 8: reading and describing are bounded.
command(2, "fp32", "describe a.yaml", name="list-of-one-word", seconds=5,
        files={"a.yaml": BASE + "numerics: [" + ", ".join(["fp32"] * 150000) + "]\n"})
command(2, "fp32", "fuzz --device sim --count 1 --jobs 1 --corpus co --timeout 3 --budget 3", name="corpus-of-one-word", seconds=5,
        files={"co/a.yaml": BASE + "numerics: [" + ", ".join(["fp32"] * 150000) + "]\n"})
command(2, "is no regular file on a disk", "describe a.yaml", name="documents-of-the-kernel",
        files={"a.yaml": BASE + "data: {kind: jsonl, path: /proc/version}\n"})
command(2, "DATA.jsonl:1: has a NUL byte", "describe a.yaml", name="record-without-an-end", megabytes=1000,
        files={"a.yaml": BASE + JSONL}, before="truncate -s 1G DATA.jsonl")
HUGE = "model: {hidden: 16384, pattern: E, moe: {experts: 256, top_k: 8}}\n"
command(0, "", "describe a.yaml", name="enormous-scenario", seconds=10, megabytes=200,
        files={"a.yaml": BASE + HUGE + "data: {pack_length: 1048576}\ntraining: {steps: 1000000}\n"})
command(0, "", "describe a.yaml", name="enormous-number-of-documents", seconds=10, megabytes=200,
        files={"a.yaml": BASE + "data: {kind: distribution, pack_length: 262144, distribution: {min: 0, max: 0, empty: 1}}\n"
               "training: {microbatches: 64, steps: 2}\ncuda_graph: {impl: none}\n"})
command(5, "--any-size", "verify --device sim a.yaml", name="run-that-no-machine-holds", seconds=30,
        files={"a.yaml": BASE + "model: {hidden: 16384, vocab: 262144, mlp: {hidden: 65536}}\n"}, any_status=True, fails=True)

# 9: a link where the temporary would be.
command(0, "", "verify --quiet a.yaml --device sim --json sy/out.json", name="link-at-the-temporary",
        files={"a.yaml": BASE, "sy/victim": "precious"}, unchanged=["sy/victim"], before="ln -s victim sy/out.json.tmp.$$")

# 11: nothing that a terminal obeys.
command(2, "\\x1b[31mk", "describe a.yaml", name="escape-in-a-key", files={"a.yaml": BASE + '"\\e[31mk\\a": 1\n'}, no_escape=True)
command(2, "\\x1b", "describe '\x1b[31mno.yaml'", name="escape-in-a-path", no_escape=True)
command(2, "\\x1b", "verify '--\x1b[31m' a.yaml", name="escape-in-an-option", files={"a.yaml": BASE}, no_escape=True)
command(2, "", "describe a.yaml", name="control-in-a-description", no_escape=True,
        files={"a.yaml": BASE + 'description: "a\\u009b31m"\n'}, any_status=True)

command(2, "is no regular file", "mutate fifo", name="report-of-a-pipe", files={"fifo": None}, seconds=5)

# 13 and 14.
command(2, "nearest legal: 10", "describe a.yaml", name="octal-number", files={"a.yaml": BASE + "training: {steps: 010}\n"})
command(2, "3.4028234663852886e", "describe a.yaml", name="rate-that-no-float-holds",
        files={"a.yaml": BASE + "training: {optimizer: {lr: 1e308}}\n"})
command(2, "--deadline", "verify --device sim --deadline 1e12 a.yaml", name="deadline-without-an-end", files={"a.yaml": RANKS})
command(1, "", "verify --device sim --mutate-checker poison-is-a-value a.yaml", name="blinded-checker", files={"a.yaml": BASE})
command(3, "TMPDIR", "verify --device sim a.yaml", name="no-temporary-folder", files={"a.yaml": RANKS.replace("auto", "shm")},
        environment={"TMPDIR": "/nonexistent"}, no_words="crash")
CAMPAIGN = "fuzz --quiet --device sim --seed 1 --count 1 --jobs 1 --log L"
command(2, "L:2: is no line", CAMPAIGN + " --resume", name="log-line-of-a-wrong-type", no_words="boost",
        before=f"\"$lockstep\" {CAMPAIGN} >/dev/null && sed -i '2s/\"case\":0/\"case\":[0]/' L")


def run(lockstep, one, folder):
    for name, contents in one["files"].items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if contents is None:
            os.mkfifo(place)
        else:
            place.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    line = f"lockstep='{lockstep}'; {one.get('before', ':')}; exec \"$lockstep\" {one['line']}"
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")}
    environment.update(one["environment"])

    def limits():
        if "megabytes" in one:
            resource.setrlimit(resource.RLIMIT_AS, (one["megabytes"] << 20,) * 2)
        os.umask(0o022)

    try:
        ended = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, preexec_fn=limits, capture_output=True,
                               timeout=one.get("seconds", 20), stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return f"did not end within {one.get('seconds', 20)} s"
    words = (ended.stdout + ended.stderr).decode(errors="replace")
    wrong = []
    if ended.returncode < 0:
        wrong.append(f"signal {-ended.returncode}")
    elif one.get("fails") and ended.returncode == 0 or (not one.get("fails") and not one.get("any_status") and
                                                        ended.returncode != one["status"]):
        wrong.append(f"status {ended.returncode}, not {one['status'] if not one.get('fails') else 'a failure'}")
    if one["words"] not in words:
        wrong.append(f"does not say {one['words']!r}")
    if one.get("no_words", "\0") in words:
        wrong.append(f"says {one['no_words']!r}")
    if one.get("no_escape") and any(c in words for c in "\x1b\x07\u009b"):
        wrong.append("prints a control character")
    for name in one["unchanged"]:
        before = one["files"][name]
        before = before if isinstance(before, bytes) else before.encode()
        if not (folder / name).is_file() or (folder / name).read_bytes() != before:
            wrong.append(f"changed {name}")
    return "" if not wrong else "; ".join(wrong) + ": " + words.strip()[-300:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    failed = []
    for one in COMMANDS:
        if options.only not in (None, one["name"]):
            continue
        if options.list:
            print(f"{one['name']}: lockstep {one['line']}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            if wrong := run(os.path.abspath(options.lockstep), one, pathlib.Path(folder)):
                failed.append(one["name"])
                print(f"{one['name']}: {wrong}")
    if not options.list:
        print(f"commands: {len(COMMANDS) - len(failed)} of {len(COMMANDS)} are as they must be")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
