#!/usr/bin/env python3
"""Commands with which lockstep was once attacked, each with the exit status and the words that it must give.

  commands.py --lockstep PATH [--only NAME] [--list] [--old]

Each runs in a folder of its own with little address space and time. --old: the program is of the time before there were keys,
at which each of them succeeds. A line for each that is wrong; exit status 1 then.
"""
import argparse
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import crafted  # noqa: E402
from crafted import safetensors  # noqa: E402
from ranks import JOBS, in_parallel  # noqa: E402

BASE = "schema: 1\nname: base\n"
TRAIN = BASE + "training: {steps: 3, microbatches: 1}\n"
RANKS = BASE + "parallel: {data: 2, transport: auto}\nfsdp: {strategy: optim_grads_params}\ntraining: {steps: 2}\n"
JSONL = 'data: {kind: jsonl, path: DATA.jsonl}\n'
COMMANDS = []


def command(status, words, line, files=None, unchanged=(), check=None, environment=None, **more):
    """Declares a command: `files` are made, `prepare` is called and `before` runs before it; `unchanged` files must be the same
    after it. `check`, given the folder, says what is wrong. A `script` is a line that does not begin with the program's name."""
    COMMANDS.append(dict(status=status, words=words, line=line, files=files or {}, unchanged=unchanged, check=check,
                         environment=environment or {}, **more))


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

command(3, "a hole", "train --quiet --device sim a.yaml --resume c", name="tensors-with-a-hole",
        files={"a.yaml": TRAIN, "c": safetensors({}, [("w", [1], 4, 8)], b"\0" * 8)})
command(3, "lockstep: c: ", "train --quiet --device sim a.yaml --resume c", name="checkpoint-of-20-gigabytes", seconds=5,
        files={"a.yaml": TRAIN}, before="truncate -s 20G c", megabytes=2000, no_words="memory")
command(3, "weight/embedding.weight", "train --quiet --device sim one.yaml --resume ck", name="part-beside-itself",
        files={"a.yaml": RANKS, "one.yaml": RANKS.replace("data: 2", "data: 1").replace("steps: 2", "steps: 2, microbatches: 4")}, prepare=crafted.checkpoint_with_a_part_twice)
command(2, "another run saves its checkpoint there", "train --quiet --device sim a.yaml --checkpoint ck", name="two-runs-at-one-path",
        files={"a.yaml": RANKS, "b.yaml": RANKS.replace("steps: 2", "steps: 3000, seed: 2")},
        before='("$lockstep" train --quiet --device sim b.yaml --checkpoint ck --checkpoint-every 1 >/dev/null 2>&1 &); '
               "while [[ ! -e ck ]]; do sleep 0.02; done")
command(3, "it stays", "train --quiet --device sim a.yaml --checkpoint ck", name="lock-of-somebody-else",
        files={"a.yaml": TRAIN, "ck.lock": "precious"}, unchanged=["ck.lock"])

command(0, "", "train --quiet --device sim a.yaml --checkpoint ck --json ck.lock", name="report-in-the-place-of-a-lock",
        files={"a.yaml": TRAIN}, check=lambda folder: not json.loads((folder / "ck.lock").read_text()) and "no report")

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

# 6: shared memory in the place of which somebody has put something.
RANK_1 = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "jobshm"}
JOIN = "train --quiet --device sim --deadline 1 --meeting ./seg a.yaml"
SEGMENT = {"a.yaml": RANKS, "seg": lambda old: crafted.segment(old, 2, crafted.whole_segment(2))}
command(3, "seg has 8 bytes", JOIN, name="segment-of-8-bytes", environment=RANK_1, before="chmod 600 seg",
        files={"a.yaml": RANKS, "seg": lambda old: crafted.segment(old, 2, 8)})
command(3, "seg has 4196 bytes", JOIN, name="segment-of-4196-bytes", environment=RANK_1, before="chmod 600 seg",
        files={"a.yaml": RANKS, "seg": lambda old: crafted.segment(old, 2, 4196)})
command(3, "seg is open to other users", JOIN, name="segment-open-to-others", environment=RANK_1, before="chmod 666 seg",
        files=SEGMENT)
if os.geteuid() == 0:  # Who else could make a file of another user?
    command(3, "seg belongs to another user", JOIN, name="segment-of-another-user", environment=RANK_1,
            before="chmod 600 seg; chown 65534 seg", files=SEGMENT)
command(3, "seg is a link", JOIN, name="segment-behind-a-link", environment=RANK_1,
        before="chmod 600 seg; mv seg there; ln -s there seg", files=SEGMENT)
WITHOUT_RANK = {key: value for key, value in RANK_1.items() if key != "RANK"}
command(0, "", "train --quiet --device sim --deadline 8 a.yaml", name="name-of-the-segment-is-taken", files={"a.yaml": RANKS},
        environment=WITHOUT_RANK,  # A folder is what this user cannot unlink, as a file of another user in a sticky one.
        before='export TMPDIR=$PWD; mkdir "lockstep-$(id -u)-jobshm" "lockstep-$(id -u)-jobshm.new"; '
               '(RANK=1 "$lockstep" train --quiet --device sim --deadline 8 a.yaml >/dev/null 2>&1 &); export RANK=0 LOCAL_RANK=0')

# 10: what killed runs leave.
command(4, "0 are left", 'export TMPDIR=$PWD/t; "$lockstep" verify --quiet --device sim --timeout 0.3 a.yaml; status=$?; '
        'echo "$(ls t | wc -l) are left"; exit $status', name="folders-of-timed-out-workers", script=True,
        files={"a.yaml": BASE + "parallel: {data: 64, transport: shm}\ntraining: {steps: 100, microbatches: 64}\n", "t/.keep": ""})
command(0, "0 are left", 'export TMPDIR=$PWD/t; setsid "$lockstep" train --quiet --device sim b.yaml & p=$!; '
        'sleep 0.5; kill -9 $p; wait $p 2>/dev/null; sleep 0.3; '
        '"$lockstep" train --quiet --device sim a.yaml; status=$?; echo "$(ls t | wc -l) are left"; exit $status',
        name="folder-of-a-killed-run", script=True,
        files={"a.yaml": RANKS, "b.yaml": RANKS.replace("steps: 2", "steps: 3000").replace("auto", "shm"), "t/.keep": ""})

# 7 and 8: reading and describing are bounded.
command(2, "fp32", f"replay --timeout 2 {crafted.token_of_one_word()}", name="token-of-one-word", seconds=10)
command(3, "probably for want of memory",
        '"$lockstep" verify --quiet --device sim a.yaml & p=$!; '
        'until child=$(cat /proc/$p/task/$p/children) && [[ -n $child ]]; do sleep 0.01; done; '
        'sleep 0.1; kill -9 $child; wait $p', name="killed-by-the-kernel", script=True,
        files={"a.yaml": BASE + "training: {steps: 5000}\n"})
command(2, "fp32", "describe a.yaml", name="list-of-one-word", seconds=5,
        files={"a.yaml": BASE + "numerics: [" + ", ".join(["fp32"] * 150000) + "]\n"})
command(2, "fp32", "fuzz --device sim --count 1 --jobs 1 --corpus co --timeout 3 --budget 3", name="corpus-of-one-word", seconds=5,
        files={"co/a.yaml": BASE + "numerics: [" + ", ".join(["fp32"] * 150000) + "]\n"})
command(2, "is no regular file on a disk", "describe a.yaml", name="documents-of-the-kernel",
        files={"a.yaml": BASE + "data: {kind: jsonl, path: /proc/version}\n"})
if os.geteuid() == 0:  # Reading it would take the kernel's messages away, and wait for more.
    command(2, "is no regular file on a disk", "describe a.yaml", name="messages-of-the-kernel", seconds=5,
            files={"a.yaml": BASE + "data: {kind: jsonl, path: /proc/kmsg}\n"})
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

command(2, "L.state", "fuzz --quiet --device sim --seed 1 --count 1 --jobs 1 --log L", name="link-at-the-state-of-a-campaign",
        before="mkdir t; ln -s t L.state", any_status=True, check=lambda folder: os.listdir(folder / "t") and "t is not empty")

# 11: nothing that a terminal obeys.
command(3, "\\x1b[31mRED", "train --quiet --device sim a.yaml --resume c", name="escape-in-a-checkpoint", no_escape=True,
        files={"a.yaml": TRAIN, "c": safetensors({"contract": "\x1b[31mRED\x07"})})
command(2, "\\x0a::error::", "describe a.yaml", name="line-in-a-file-name", no_escape=True, no_words="\n::error::",
        files={"a.yaml": BASE + "data: {kind: text, path: dd}\n", "dd/a\x1b[31m\n::error::b": "\0"})
command(2, "", "verify --device sim $'\\xff.yaml' --json out.json --junit out.xml", name="reports-of-a-name-that-is-no-text",
        before="cp a.yaml $'\\xff.yaml'", files={"a.yaml": BASE + "k: 1\n"},
        check=lambda folder: (json.loads((folder / "out.json").read_bytes().decode()),
                              xml.etree.ElementTree.parse(folder / "out.xml")) and "")
command(2, "", "describe a.yaml", name="direction-in-a-description", no_escape=True, any_status=True,
        files={"a.yaml": BASE + 'description: "a\\u202eb"\n'})
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
# The digest is of what is trained on: of documents that another process replaces all the time, a run says that they changed.
command(3, "D.jsonl: has changed since it was first read", '(while :; do ln -f A n; mv n D.jsonl; sleep 0.01; ln -f B n; mv n D.jsonl; '
        'sleep 0.01; done) >/dev/null 2>&1 & cp A D.jsonl; for i in {1..20}; do "$lockstep" train --quiet --device sim a.yaml; status=$?; '
        "((status != 3)) || exit 3; done", name="documents-that-change", script=True,
        files={"a.yaml": TRAIN + "data: {kind: jsonl, path: D.jsonl}\n", "A": '{"text": "abcdefgh abcdefgh"}\n' * 20000,
               "B": '{"text": "zyxwvuts zyxwvuts"}\n' * 20000})
command(2, "token: its length is not", "replay " + crafted.token('{"schema":1,"name":"a"}', 0x80), name="token-with-spare-bits")
command(3, "", "verify --quiet --device cuda a.yaml", name="object-of-the-environment", files={"a.yaml": BASE, "evil.so": "x"},
        environment={"LOCKSTEP_CUDA_OBJECT": "./evil.so", "CUDA_VISIBLE_DEVICES": ""}, any_status=True, no_words="evil.so")
CAMPAIGN = "fuzz --quiet --device sim --seed 1 --count 1 --jobs 1 --log L"
command(2, "L:2: is no line", CAMPAIGN + " --resume", name="log-line-of-a-wrong-type", no_words="boost",
        before=f"\"$lockstep\" {CAMPAIGN} >/dev/null && sed -i '2s/\"case\":0/\"case\":[0]/' L")


def run(lockstep, old, one, folder):
    for name, contents in one["files"].items():
        place = crafted.place_for(folder, name)
        if callable(contents):
            contents = contents(old)
        if contents is None:
            os.mkfifo(place)
        else:
            place.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    if "prepare" in one:
        one["prepare"](lockstep, folder)
    line = one["line"] if one.get("script") else f"{one.get('before', ':')}; exec \"$lockstep\" {one['line']}"
    line = f"lockstep='{lockstep}'; {line}"
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    environment.update(one["environment"])

    def limits():
        if "megabytes" in one:
            resource.setrlimit(resource.RLIMIT_AS, (one["megabytes"] << 20,) * 2)
        os.umask(0o022)

    with subprocess.Popen(["bash", "-c", line], cwd=folder, env=environment, preexec_fn=limits, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as ended:
        try:
            out, err = ended.communicate(timeout=one.get("seconds", 20))
        except subprocess.TimeoutExpired:
            return f"did not end within {one.get('seconds', 20)} s"
        finally:
            try:
                os.killpg(ended.pid, signal.SIGKILL)  # What runs beside it.
            except ProcessLookupError:
                pass
    words = (out + err).decode(errors="replace")
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
    if one.get("no_escape") and any(c in words for c in "\x1b\x07\u009b\u202e"):
        wrong.append("prints a control character")
    for name in one["unchanged"]:
        before = one["files"][name]
        before = before if isinstance(before, bytes) else before.encode()
        if not (folder / name).is_file() or (folder / name).read_bytes() != before:
            wrong.append(f"changed {name}")
    if one["check"]:
        try:
            wrong += [complaint] if (complaint := one["check"](folder)) else []
        except (OSError, ValueError, xml.etree.ElementTree.ParseError) as error:
            wrong.append(str(error))
    return "" if not wrong else "; ".join(wrong) + ": " + words.strip()[-300:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--old", action="store_true")
    options = parser.parse_args()
    chosen = [one for one in COMMANDS if options.only in (None, one["name"])]
    if options.list:
        for one in chosen:
            print(f"{one['name']}: {'' if one.get('script') else 'lockstep '}{one['line'][:200]}")
        return

    def try_one(one):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            return run(os.path.abspath(options.lockstep), options.old, one, pathlib.Path(folder))

    failed = 0
    for one, wrong in zip(chosen, in_parallel(JOBS, try_one, chosen)):
        if wrong:
            failed += 1
            print(f"{one['name']}: {wrong}")
    print(f"commands: {len(chosen) - failed} of {len(chosen)} are as they must be")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
