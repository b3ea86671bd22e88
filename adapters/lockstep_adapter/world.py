"""lockstep's end of the wire in Python (docs/engine-protocol.md, sections 1, 2, 11): for tests of an adapter without lockstep."""
import itertools
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

LONGEST_LINE = 1 << 20
MOST_BYTES = 256 << 20
LAST_WORDS = 64 << 10


class EngineFailure(Exception):
    """A failure of section 11. `judge` is crash, watchdog or protocol."""

    def __init__(self, judge, reason, phase="", last_words=""):
        super().__init__(f"{judge}: {reason}" + (f" (in {phase})" if phase else "") + (f"\n{last_words[-2000:]}" if last_words else ""))
        self.judge, self.reason, self.phase, self.last_words = judge, reason, phase, last_words


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Child:
    """One rank. Its stdout and stderr go to a file of which the end is kept as its last words."""

    def __init__(self, command, rank, ranks, port, folder):
        self.rank, self.number, self.phase, self._rest, self._received = rank, 0, "", b"", 0
        engine_reads, self._write = os.pipe()
        self._read, engine_writes = os.pipe()
        places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
        variables = {**os.environ, **{name: str(value) for name, value in places.items()}, "MASTER_ADDR": "127.0.0.1",
                     "LOCKSTEP_ENGINE_FDS": f"{engine_reads},{engine_writes}"}
        self._words_path = pathlib.Path(folder) / f"words-{rank}"
        words = open(self._words_path, "ab")
        self.process = subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], stdin=subprocess.DEVNULL, stdout=words,
                                        stderr=words, env=variables, pass_fds=(engine_reads, engine_writes),
                                        start_new_session=True)
        os.close(engine_reads)
        os.close(engine_writes)
        words.close()

    def last_words(self):
        with open(self._words_path, "rb") as words:
            words.seek(max(0, words.seek(0, os.SEEK_END) - LAST_WORDS))
            return words.read().decode(errors="backslashreplace")

    def fail(self, judge, reason):
        raise EngineFailure(judge, f"rank {self.rank}: {reason}", self.phase, self.last_words())

    def ask(self, message):
        self.number, self._received, self.phase = self.number + 1, 0, ""
        line = json.dumps({**message, "id": self.number}, separators=(",", ":")).encode() + b"\n"
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a request of {len(line)} bytes")
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._write, view):]
        except BrokenPipeError:
            self._end_of_file()

    def _end_of_file(self):
        try:
            status = self.process.wait(5)
        except subprocess.TimeoutExpired:
            status = "still runs"
        self.fail("crash", f"ended the dialogue (status {status})")

    def reply(self, deadline):
        """The final reply to the last request, with the lists of its parts in it."""
        parts = {"rows": [], "tensors": []}
        while True:
            message = self._message(self._line(deadline))
            if "phase" in message:
                self.phase = message["phase"]
                continue
            for name, part in parts.items():
                if not isinstance(message.get(name, []), list):
                    self.fail("protocol", f"`{name}` is no list")
                part += message.get(name, [])
            if not message.get("more"):
                return {**message, **parts}

    def _message(self, line):
        try:
            message = json.loads(line.decode())
        except ValueError as error:
            self.fail("protocol", f"{error}: {line[:200]!r}")
        if not isinstance(message, dict) or message.get("id") != self.number:
            self.fail("protocol", f"no reply to request {self.number}: {line[:200]!r}")
        return message

    def _line(self, deadline):
        while b"\n" not in self._rest:
            if len(self._rest) > LONGEST_LINE:
                self.fail("protocol", f"a line of over {LONGEST_LINE} bytes: {self._rest[:200]!r}")
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                self.fail("watchdog", "no reply by the deadline")
            piece = os.read(self._read, 1 << 16)
            self._received += len(piece)
            if not piece:
                self._end_of_file()
            if self._received > MOST_BYTES:
                self.fail("protocol", f"over {MOST_BYTES} bytes of replies")
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        if len(line) >= LONGEST_LINE:
            self.fail("protocol", f"a line of {len(line)} bytes")
        return line

    def close_channel(self):
        for fd in (self._read, self._write):
            os.close(fd)

    def kill(self, patience=5.0):
        """Ends the process group: TERM after `patience` seconds, KILL two seconds later."""
        for number, seconds in ((None, patience), (signal.SIGTERM, 2.0), (signal.SIGKILL, 60.0)):
            if number is not None:
                try:
                    os.killpg(self.process.pid, number)
                except ProcessLookupError:
                    pass
            try:
                self.process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # What the child started and left.
        except ProcessLookupError:
            pass


class World:
    """All ranks of an engine. A context manager: no process and no folder stays."""

    def __init__(self, command, ranks=1, hello_s=120):
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-engine-", dir=base))
        port, self.failed, self.numbers = free_port(), False, itertools.count(1)  # `numbers` for names in the folder.
        self.children = [Child(command, rank, ranks, port, self.folder) for rank in range(ranks)]
        try:
            messages = []
            for rank in range(ranks):
                own = self.folder / str(rank)
                own.mkdir()
                messages.append({"op": "hello", "protocol": 1, "lockstep": "python", "rank": rank, "ranks": ranks,
                                 "folder": str(own)})
            replies = self._ask_each(messages, hello_s)
            self.hello = replies[0]
            for name in ("protocol", "engine", "honours", "observes"):
                if any(name not in reply or reply[name] != self.hello[name] for reply in replies):
                    raise EngineFailure("protocol", f"hello lacks `{name}` or ranks differ in it: {replies}"[:500])
            if self.hello["protocol"] != 1:
                raise EngineFailure("protocol", f"the engine speaks protocol {self.hello['protocol']}")
        except BaseException:
            self.close(0)
            raise

    def _ask_each(self, messages, seconds):
        deadline = time.monotonic() + seconds
        try:
            for child, message in zip(self.children, messages):
                child.ask(message)
            return [child.reply(deadline) for child in self.children]
        except EngineFailure:
            self.failed = True
            raise

    def ask(self, operation, seconds=60, **fields):
        """The final reply of each rank."""
        return self._ask_each([{"op": operation, **fields}] * len(self.children), seconds)

    def close(self, patience=5.0):
        patience = 0 if self.failed else patience
        try:
            if patience:
                self.ask("bye", patience)
        except (EngineFailure, OSError):
            pass
        for child in self.children:
            child.close_channel()
        for child in self.children:
            child.kill(patience)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(5.0 if kind is None else 0)
