"""The engine's end of the wire: `serve(engine)` answers lockstep's requests (docs/engine-protocol.md).

An engine is an object with
    hello() -> dict            what section 4 asks for, without `id` and `protocol`
    check(scenario) -> list    refusals {"key", "why"}; [] if the scenario can be run
    run(request, out)          does the run of section 6, tells `out` (a Recorder) what it saw, returns its counters
    reset() -> bool            forgets the case; True asks for a new process (optional)
It raises Skipped or Failed where a run cannot be done; any other exception is reported as `failed` too."""
import gc
import json
import os
import queue
import sys
import threading
import time
import traceback

from .feed import Feed
from .tensors import write_file

PROTOCOL = 1
LONGEST_LINE = 1 << 20
PART = 1 << 18  # Bytes of entries that are sent at once.
MOST_DUMPED = 256


class Skipped(Exception):
    """The run needs what this machine lacks: reported, never a pass."""


class Failed(Exception):
    """The run failed in `phase` (build, capture, forward, backward, optimizer, memory, or free)."""

    def __init__(self, phase, what, where=""):
        super().__init__(what)
        self.answer = {"failed": phase, "what": what[:2000], **({"where": where} if where else {})}


class Request:
    """What a run is asked to do. `get("cuda_graph.impl")` reads a key of the scenario."""

    def __init__(self, message, rank, ranks, folder):
        self.scenario, self.rank, self.ranks, self.folder = message["scenario"], rank, ranks, folder
        self.feed = Feed(message["feed"])
        self.observe = frozenset(message["observe"])
        amplify = message.get("amplify", {})
        self.poison, self.delay_us = bool(amplify.get("poison")), amplify.get("delay_us", {})
        self.resume_at = message.get("resume_at", [])
        self.numerics = self.scenario["numerics"][0]

    def get(self, key):
        value = self.scenario
        for word in key.split("."):
            value = value[word]
        return value


def key_of(kind, name, phase, step, microbatch):
    place = f"{'e' if phase == 'evaluation' else ''}{step}" + ("" if microbatch is None else f".{microbatch}")
    return f"{kind}:{name}@{place}"


class Recorder:
    """Collects what a run observed and sends it in parts. `dump`: keys whose tensors are kept for a file."""

    def __init__(self, send, observe, dump=()):
        self._send, self._observe, self._dump = send, observe, frozenset(dump)
        self._parts, self._bytes = {"rows": [], "tensors": []}, 0
        self._rows, self.dumped = {}, {}

    def wants(self, kind):
        return kind in self._observe

    def phase(self, text):
        """Says where the run is; shown if it dies or hangs there."""
        self._send({"phase": text[:200]})

    def rows(self, step, microbatch, documents, phase="training"):
        """Where each document lies: [begin, end) each. To be told before row tensors of that microbatch."""
        self._rows[phase, step, microbatch] = documents
        entry = {"step": step, "microbatch": microbatch, "documents": documents}
        self._add("rows", {**entry, "phase": phase} if phase != "training" else entry)

    def tensor(self, kind, name, tensor, step, microbatch=None, phase="training", by_rows=None):
        """Observes a Tensor, or what a function without arguments returns, if its kind is wanted. `by_rows`: whether the first
        axis is the pack's rows; by default of every `token_loss`, `activation` and `activation_gradient`."""
        if kind not in self._observe:
            return
        tensor = tensor() if callable(tensor) else tensor
        if by_rows is None:
            by_rows = kind in ("token_loss", "activation", "activation_gradient")
        entry = {"step": step, "kind": kind, "name": name, "dtype": tensor.dtype, "shape": list(tensor.shape),
                 "sha256": tensor.digest()}
        if phase != "training":
            entry["phase"] = phase
        if microbatch is not None:
            entry["microbatch"] = microbatch
        documents = self._rows[phase, step, microbatch] if by_rows else None
        if by_rows:
            entry["by_document"] = [tensor.digest(rows) for rows in documents]
        entry["nan"], entry["nonzero"] = tensor.counts(documents)
        key = key_of(kind, name, phase, step, microbatch)
        if key in self._dump:
            self.dumped[key] = tensor
        self._add("tensors", entry)

    def _add(self, part, entry):
        self._parts[part].append(entry)
        self._bytes += 400 + 70 * len(entry.get("documents", ())) + 70 * len(entry.get("by_document", ()))
        if self._bytes > PART:
            self._send({"more": True, **self.take()})

    def take(self):
        parts, self._parts, self._bytes = self._parts, {"rows": [], "tensors": []}, 0
        return parts


class Channel:
    """Requests in, replies out. A thread reads, so that the end of the file ends this process in the middle of a run too."""

    def __init__(self, read_fd, write_fd):
        for fd in (read_fd, write_fd):
            os.set_inheritable(fd, False)
        self._write_fd, self._requests = write_fd, queue.SimpleQueue()
        threading.Thread(target=self._read, args=(read_fd,), daemon=True).start()

    def _read(self, fd):
        with os.fdopen(fd, "rb") as file:
            while True:
                line = file.readline(LONGEST_LINE + 1)
                if not line.endswith(b"\n") or len(line) > LONGEST_LINE:
                    os._exit(0 if not line else 3)  # lockstep is gone, or sends what nobody can read.
                self._requests.put(line)

    def receive(self):
        return self._requests.get()

    def send(self, message):
        line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if len(line) > LONGEST_LINE:
            line = json.dumps({"id": message.get("id", 0), "failed": "protocol", "what": f"a reply of {len(line)} bytes"}).encode() + b"\n"
        view = memoryview(line)
        while view:
            view = view[os.write(self._write_fd, view):]


class Server:
    """Answers one request after the other."""

    def __init__(self, engine, send):
        self.engine, self._send = engine, send
        self.rank, self.ranks, self.folder = 0, 1, ""
        self.done = False

    def answer(self, line):
        number = 0
        try:
            message = json.loads(line.decode())
            number = message["id"]
            operation = getattr(self, f"do_{message['op']}", None)
            if operation is None:
                return self._send({"id": number, "unsupported": message["op"]})
        except (ValueError, KeyError, TypeError) as error:
            return self._send({"id": number, "failed": "protocol", "what": f"{type(error).__name__}: {error}"})
        try:
            reply = operation(message)
        except Skipped as skipped:
            reply = {"skipped": str(skipped)}
        except Failed as failed:
            reply = failed.answer
        except Exception as error:
            traceback.print_exc()
            word = "memory" if type(error).__name__ in ("MemoryError", "OutOfMemoryError") else "exception"
            where = traceback.extract_tb(error.__traceback__)[-1]
            reply = Failed(word, f"{type(error).__name__}: {error}", f"{where.filename}:{where.lineno}").answer
        return self._send({"id": number, **reply})

    def do_hello(self, message):
        self.rank, self.ranks, self.folder = message["rank"], message["ranks"], message["folder"]
        return {"protocol": PROTOCOL, **self.engine.hello()}

    def do_check(self, message):
        refused = self.engine.check(message["scenario"])
        return {"refused": refused} if refused else {"ok": True}

    def do_run(self, message):
        return self._run(message, ())[0]

    def do_dump(self, message):
        reply, out = self._run(message, message["tensors"][:MOST_DUMPED])
        write_file(message["to"] + (f".{self.rank}" if self.rank else ""), out.dumped)
        return {**reply, "written": len(out.dumped)}

    def _run(self, message, dump):
        started = time.monotonic()
        out = Recorder(lambda part: self._send({"id": message["id"], **part}), message["observe"], dump)
        counters = self.engine.run(Request(message, self.rank, self.ranks, self.folder), out)
        return {**out.take(), "counters": counters, "seconds": round(time.monotonic() - started, 3)}, out

    def do_reset(self, _message):
        restart = bool(getattr(self.engine, "reset", bool)())
        return {"ok": True, "restart": True} if restart else {"ok": True}

    def do_bye(self, _message):
        self.done = True
        return {"ok": True}


def play(engine, path):
    """Plays the requests of a log (LOCKSTEP_ENGINE_LOG) to the engine, for a debugger; replies go to stdout."""
    server = Server(engine, lambda reply: print(json.dumps(reply)[:2000]))
    with open(path, encoding="utf-8") as log:
        for line in log:
            if line.startswith("> ") and not server.done:
                server.answer(line[2:].encode())


def serve(engine, arguments=None):
    """Answers lockstep until it says bye. `--play LOG` plays a log instead."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--play"]:
        return play(engine, arguments[1])
    if "LOCKSTEP_ENGINE_FDS" not in os.environ:
        sys.exit("this program is started by lockstep: --engine 'CMD'; or play a log: --play LOG")
    # What was imported by now stays: a collection, of which a capture of a graph needs one, takes a fifth of a second for PyTorch alone.
    gc.freeze()
    channel = Channel(*(int(word) for word in os.environ["LOCKSTEP_ENGINE_FDS"].split(",")))
    server = Server(engine, channel.send)
    while not server.done:
        server.answer(channel.receive())
