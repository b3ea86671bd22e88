#!/usr/bin/env python3
"""What `lockstep engine` answers to a host that lies: requests that are none, and feeds that are not what they say.

  engine.py --lockstep PATH

Each lie is answered with a sentence, in time, in little memory, and the engine then runs an honest request. Exit status 1
with a line for each that is wrong.
"""
import argparse
import array
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import threading

MEGABYTES, SECONDS = 1500, 20
STEPS, ROWS, VOCAB = 2, 16, 32
MODEL = {"pattern": "-", "hidden": 16, "vocab": VOCAB, "mlp": {"hidden": 16}}
SCENARIO = {"schema": 1, "name": "asked", "numerics": ["fp32"], "model": MODEL, "data": {"pack_length": ROWS},
            "training": {"steps": STEPS, "microbatches": 1, "eval_every": 2}, "cuda_graph": {"impl": "none"}}
CODES = {"I64": "q", "I32": "i", "F32": "f"}


def tensor_file(tensors, header=None):
    """tensors: name -> (type, shape, values). `header` replaces the header's length or its text."""
    entries, data = {}, b""
    for name, (kind, shape, values) in tensors.items():
        part = array.array(CODES[kind], values).tobytes()
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(entries).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", header if isinstance(header, int) else len(text)) + text + data


def tables(**changes):
    packs = changes.get("packs", [[0, 0, 0, 0, 1], [0, 1, 0, 1, 1], [1, 1, 0, 2, 1]])
    documents = changes.get("documents", [[0, 0, 4], [0, 4, 4], [0, 8, 4]])
    tokens = changes.get("tokens", [1, 2, 3, 4] * 3)
    targets = changes.get("targets", [2, 3, 4, -1] * 3)
    scalars = [1.0] * changes.get("scalars", STEPS)
    flat = [[number for row in table for number in row] for table in (packs, documents)]
    return {"packs": ("I64", [len(packs), 5], flat[0]), "documents": ("I64", [len(documents), 3], flat[1]),
            "tokens": ("I32", [len(tokens)], tokens), "targets": ("I32", [len(targets)], targets),
            "loss_scale": ("F32", [len(scalars)], scalars), "learning_rate": ("F32", [len(scalars)], scalars)}


def weights():
    shapes = {"embedding.weight": [VOCAB, 16], "layers.0.norm.gain": [16], "layers.0.fc1.weight": [16, 16],
              "layers.0.fc2.weight": [16, 16], "final_norm.gain": [16], "head.weight": [VOCAB, 16]}
    return {name: ("F32", shape, [0.01] * (shape[0] * (shape[1] if len(shape) > 1 else 1))) for name, shape in shapes.items()}


class Engine:
    """A child that has said hello, with little address space."""

    def __init__(self, lockstep, folder):
        to_child, from_child = os.pipe(), os.pipe()
        for descriptor in (to_child[0], from_child[1]):
            os.set_inheritable(descriptor, True)
        environment = dict(os.environ, LOCKSTEP_ENGINE_FDS=f"{to_child[0]},{from_child[1]}")
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(
            [lockstep, "engine", "--device", "sim"], env=environment, pass_fds=(to_child[0], from_child[1]),
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20,) * 2))
        os.close(to_child[0])
        os.close(from_child[1])
        self.requests, self.replies = os.fdopen(to_child[1], "wb"), os.fdopen(from_child[0], "rb")

    def raw(self, line):
        """The final reply to these bytes; None if the engine ended, or gave no answer in time."""
        killer = threading.Timer(SECONDS, self.process.kill)
        killer.start()
        try:
            self.requests.write(line)
            self.requests.flush()
            while reply := self.replies.readline():
                reply = json.loads(reply)
                if not reply.get("more"):
                    return reply
        except BrokenPipeError:
            pass
        finally:
            killer.cancel()
        return None

    def ask(self, **request):
        return self.raw(json.dumps(request).encode() + b"\n")

    def end(self):
        for one in (self.requests, self.replies):
            try:
                one.close()
            except BrokenPipeError:
                pass
        try:
            return self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        finally:
            self.log.close()


REQUESTS = {  # name: (line, words of the answer)
    "no JSON": (b"\xff\xfe{\n", "no JSON object"),
    "a list": (b"[1]\n", "no JSON object"),
    "a hundred levels": (b'{"op":' * 100 + b"1" + b"}" * 100 + b"\n", "no JSON object"),
    "no op": (b'{"id":1}\n', "no op"),
    "an unknown op": (b'{"id":1,"op":"\\u001b[31m"}\n', "unsupported"),
    "no scenario": (b'{"id":1,"op":"run"}\n', "no scenario"),
    "a number beyond 64 bits": (b'{"id":1,"op":"check","scenario":{"schema":1e400}}\n', "Y05"),
}


def write_feed(folder, data, weight):
    folder.mkdir()
    for name, contents in (("data", data), ("weights", weight)):
        place = folder / f"{name}.safetensors"
        if callable(contents):
            contents(place)
        else:
            place.write_bytes(contents)


def sparse(place):
    with open(place, "wb") as file:
        file.truncate(1 << 40)


def with_tables(**changes):
    return tensor_file(tables(**changes)), tensor_file(weights())


WHOLE = tensor_file(weights())
MANY = 20000
FEEDS = {  # name: ((data.safetensors, weights.safetensors), words of the answer)
    "a pipe": ((os.mkfifo, WHOLE), "is not a regular file"),
    "a folder": ((os.mkdir, WHOLE), "is not a regular file"),
    "a device without an end": ((lambda place: os.symlink("/dev/zero", place), WHOLE), "is not a regular file"),
    "a terabyte": ((sparse, WHOLE), "too many for this machine"),
    "weights of a terabyte": ((tensor_file(tables()), sparse), "too many for this machine"),
    "nothing": ((b"", WHOLE), "shorter than its header"),
    "a header of 2^63 bytes": ((tensor_file(tables(), 2**63), WHOLE), "header is too long"),
    "a header that is a number": ((tensor_file({}, b"17"), WHOLE), "not that of a tensor file"),
    "a header of brackets": ((tensor_file({}, b"[" * 100000), WHOLE), "not that of a tensor file"),
    "a shape that wraps": ((tensor_file({}, b'{"packs":{"dtype":"I64","shape":[4294967296,4294967296],"data_offsets":[0,0]}}'),
                            WHOLE), "a shape that no memory holds"),
    "an overlap": ((tensor_file({}, b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}'), WHOLE), "a hole or an overlap"),
    "a table of other columns": ((tensor_file(dict(tables(), packs=("I64", [4], [0] * 4))), WHOLE), "other columns"),
    "documents beyond the table": (with_tables(packs=[[0, 0, 0, 0, 2**62], [0, 1, 0, 1, 1], [1, 1, 0, 2, 1]]), "does not have"),
    "tokens beyond the table": (with_tables(documents=[[0, 2**62, 2**62], [0, 4, 4], [0, 8, 4]]), "does not have"),
    "a length below zero": (with_tables(documents=[[0, 4, -4], [0, 4, 4], [0, 8, 4]]), "does not have"),
    "more rows than a pack has": (with_tables(documents=[[0, 0, 17], [0, 4, 4], [0, 8, 4]], tokens=[1] * 32,
                                              targets=[-1] * 32), "more rows than it has"),
    "one document in many packs": (with_tables(packs=[[0, 0, i, 0, 1] for i in range(MANY)]), "not in order"),
    "the same tokens in many documents": (with_tables(packs=[[0, 0, 0, 0, 4], [0, 1, 0, 4, 0], [1, 1, 0, 4, 0]],
                                                      documents=[[0, 0, 4]] * 4, tokens=[1] * 12), "part of two documents"),
    "other microbatches": (with_tables(packs=[[0, 0, 0, 0, 1], [0, 1, 0, 1, 1], [0, 1, 1, 2, 0], [1, 1, 0, 2, 1]]),
                           "other microbatches"),
    "an evaluation of many microbatches": (with_tables(packs=[[0, 0, 0, 0, 1], [0, 1, 0, 1, 1]] +
                                                       [[1, 1, i, 2, 0] for i in range(64)]), "other microbatches"),
    "no evaluation": (with_tables(packs=[[0, 0, 0, 0, 1], [0, 1, 0, 1, 1]]), "other microbatches"),
    "a number of 41 bits": (with_tables(documents=[[2**40, 0, 4], [0, 4, 4], [0, 8, 4]]), "a number that none can have"),
    "a token that is no word": (with_tables(tokens=[VOCAB] * 12), "outside of the vocabulary"),
    "a target that is no word": (with_tables(targets=[-2] * 12), "outside of the vocabulary"),
    "scalars of one step": (with_tables(scalars=1), "for each step"),
    "no weights": ((tensor_file(tables()), tensor_file({})), "is missing"),
    "weights of other sizes": ((tensor_file(tables()), tensor_file(dict(weights(), **{"head.weight": ("F32", [1], [0.0])}))),
                               "another number of elements"),
}
SCENARIOS = {  # name: (changes, words of the answer)
    "enormous": ({"model": dict(MODEL, hidden=16384, vocab=262144)}, "it takes at least"),
    "illegal": ({"model": dict(MODEL, hidden=-1)}, "hidden"),
    "of two ranks": ({"parallel": {"data": 2}}, "one process is one rank"),
    "with escapes": ({"name": "\x1b[31m"}, "name"),
}


def words_of(reply):
    return "nothing" if reply is None else json.dumps(reply, ensure_ascii=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    lockstep = os.path.abspath(parser.parse_args().lockstep)
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write_feed(folder / "honest", *with_tables())
        (folder / "own").mkdir()

        def start():
            engine = Engine(lockstep, folder)
            engine.ask(op="hello", id=1, protocol=1, folder=str(folder / "own"))
            return engine

        def run(engine, feed, **more):
            return engine.ask(op="run", id=2, scenario=dict(SCENARIO, **more.pop("changes", {})), feed=str(feed),
                              observe=["weight"], **more)

        engine = Engine(lockstep, folder)
        early = run(engine, folder / "honest", resume_at=[1])
        if "before hello" not in words_of(early):
            wrong.append(f"a run before hello: {words_of(early)}")
        engine.end()
        engine = start()
        honest = run(engine, folder / "honest")
        if not honest or "counters" not in honest:
            sys.exit(f"engine: an honest run failed: {words_of(honest)}")

        def judge(name, words, reply):
            nonlocal engine
            said = words_of(reply)
            if words not in said or "counters" in said or "\\u001b" in said and name != "an unknown op":
                wrong.append(f"{name}: {words!r} expected, and it says {said[:300]}")
            again = run(engine, folder / "honest")
            if not again or dict(again, seconds=0) != dict(honest, seconds=0):
                wrong.append(f"{name}: the next run is another: {words_of(again)[:300]}")
                engine.end()
                engine = start()

        for name, (line, words) in REQUESTS.items():
            judge(name, words, engine.raw(line))
        for number, (name, (contents, words)) in enumerate(FEEDS.items()):
            write_feed(folder / str(number), *contents)
            judge(name, words, run(engine, folder / str(number)))
        for name, (changes, words) in SCENARIOS.items():
            judge(name, words, run(engine, folder / "honest", changes=changes))
        (folder / "there").write_text("precious")
        dump = engine.ask(op="dump", id=3, scenario=SCENARIO, feed=str(folder / "honest"), observe=["weight"],
                          tensors=["weight:head.weight@0"], to=str(folder / "there"), resume_at=[1])
        if "is there already" not in words_of(dump) or (folder / "there").read_text() != "precious":
            wrong.append(f"a dump over a file: {words_of(dump)[:300]}")
        if list((folder / "own").iterdir()):
            wrong.append(f"left in its folder: {list((folder / 'own').iterdir())}")
        if engine.end() != 0:
            wrong.append("it did not end with status 0 when its host was gone")
        engine = start()
        engine.raw(b"x" * (3 << 20))  # Without an end.
        if engine.end() != 3:
            wrong.append("a request without an end: not status 3")
    count = len(REQUESTS) + len(FEEDS) + len(SCENARIOS) + 4
    for one in wrong:
        print(one)
    print(f"engine: {count} lies, {len(wrong)} complaints")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
