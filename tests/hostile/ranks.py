"""Starts the ranks of `lockstep train` as processes, as a launcher would, for the scripts beside it."""
import concurrent.futures
import fcntl
import itertools
import os
import pathlib
import random
import re
import socket
import subprocess
import time

SCENARIO = """schema: 1
name: ranks
model: {pattern: "*-", hidden: 32, vocab: 64}
parallel: {data: 2, transport: auto}
fsdp: {strategy: optim_grads_params}
data: {pack_length: 64}
training: {steps: STEPS, microbatches: 2}
"""


PORTS = itertools.count(random.randrange(12000))
# Of each port a byte, locked by the process that has it until it ends; tests/engine/rendezvous/raw_peer.h does the same.
RESERVED = os.open(f"/tmp/lockstep-test-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)


def free_port():
    """Below those that the system gives to who connects: one that connects before anybody listens would get it itself. No port
    is given twice, because several runs may begin at once, and no other test gets one before somebody listens at it."""
    while True:
        port = 20000 + next(PORTS) % 12000
        try:
            fcntl.lockf(RESERVED, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            with socket.socket() as one:
                one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port


def in_parallel(jobs, work, items):
    """The results of work(item) in the order of the items; the first exception ends it."""
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


JOBS = max(4, min(8, os.cpu_count() or 1))  # These runs wait more than they compute.


class Ranks:
    """Two processes of one run; each writes its report and what it prints into `folder`."""

    def __init__(self, lockstep, folder, steps, key=None, deadline=60, options=()):
        self.lockstep, self.folder, self.deadline = lockstep, pathlib.Path(folder), deadline
        self.options, self.key = list(options), key
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "ranks.yaml").write_text(SCENARIO.replace("STEPS", str(steps)))
        self.processes = {}

    def start(self, rank, meeting=None, key=None):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_MEETING")}
        environment.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                           MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TMPDIR=str(self.folder))
        if key or self.key:
            environment["LOCKSTEP_MEETING_KEY"] = key or self.key
        command = [self.lockstep, "train", "--quiet", "--device", "sim", "--deadline", str(self.deadline), "--json",
                   f"{self.folder}/{rank}.json", *self.options, f"{self.folder}/ranks.yaml"]
        if meeting:
            command[2:2] = ["--meeting", meeting]
        with open(self.folder / f"{rank}.log", "wb") as log:
            self.processes[rank] = subprocess.Popen(command, env=environment, stdout=log, stderr=log,
                                                    start_new_session=True)

    def wait(self, seconds):
        """The exit status of each rank; None for one that did not end in time, which is killed."""
        end = time.monotonic() + seconds
        ended = {}
        for rank, process in self.processes.items():
            try:
                ended[rank] = process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                ended[rank] = None
        return ended

    def digest(self):
        """Of the weights after the last step, as rank 0 prints it; "" if it did not come so far."""
        found = re.findall(r"weights ([0-9a-f]{32})", self.log())
        return found[-1] if found else ""

    def log(self):
        return "\n".join(f"rank {rank}: " + (self.folder / f"{rank}.log").read_text(errors="replace")
                         for rank in self.processes)
