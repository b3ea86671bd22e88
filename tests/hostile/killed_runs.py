#!/usr/bin/env python3
"""Kills ranks that train and save, at random moments, and starts them again.

  killed_runs.py --lockstep PATH [--count 100] [--seed 1]

--count times, two ranks train and save after every step, over TCP and in shared memory in turns; one of them, or both, gets
SIGKILL; the one that is left must end by itself with status 4 (or has ended with 0). Then both start again from the
checkpoint, if there is one, and must end with the weights of a run that nobody killed. After that no temporary file, no
folder of a run, no shared memory and no process of the killed run is left. Exit status: 0, or 1 with the seed that failed.
"""
import argparse
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from ranks import JOBS, Ranks, free_port, in_parallel  # noqa: E402

STEPS, MORE, DEADLINE, KEY = 40, 2, 4, "k" * 64


def train(lockstep, folder, network, steps):
    """Goes on from the checkpoint that is there. A killed run has fewer steps, so that there is always one to go on with."""
    state = folder / "state"
    options = ["--checkpoint", str(state), "--checkpoint-every", "1", "--steps", str(steps)]
    if state.exists():
        options += ["--resume", str(state)]
    ranks = Ranks(lockstep, folder, STEPS + MORE, key=KEY, deadline=DEADLINE, options=options)
    meeting = f"127.0.0.1:{free_port()}" if network else None
    ranks.start(0, meeting)
    ranks.start(1, meeting)
    return ranks


def left_in(folder):
    """What no finished run leaves, shared memory among it, for which the folder is the temporary one: all but the scenario, logs, reports, and the checkpoint with its ranks' files."""
    good = ("ranks.yaml", "0.log", "1.log", "0.json", "1.json", "state", ".")
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*")
                  if one.name not in good and not (one.name.startswith("state.") and ".rank-" in one.name and
                                                   ".tmp" not in one.name))


def killed_once(lockstep, folder, seed, weights, seconds):
    draw = random.Random(seed)
    network = draw.randrange(2) == 0
    ranks = train(lockstep, folder, network, STEPS)
    time.sleep(draw.uniform(0, seconds))
    victims = draw.choice([(0,), (1,), (0, 1)])
    for rank in victims:
        ranks.processes[rank].send_signal(signal.SIGKILL)
    ended = ranks.wait(2 * DEADLINE)
    for rank, status in ended.items():
        # Of two, the second may have missed the first before its own signal came.
        if status not in ((0, 4, -signal.SIGKILL) if rank in victims else (0, 4)):
            return f"rank {rank} ended with {status}, killed were {victims}\n{ranks.log()}", False
    had_state = (folder / "state").exists()
    again = train(lockstep, folder, network, STEPS + MORE)
    if (ended := again.wait(60)) != {0: 0, 1: 0}:
        return f"the next run ended with {ended}\n{again.log()}", had_state
    if again.digest() != weights:
        return f"weights {again.digest()} and not {weights}\n{again.log()}", had_state
    if left := left_in(folder):
        return f"left behind: {left}", had_state
    return "", had_state


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    resumed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "whole"
        began = time.monotonic()
        whole = train(options.lockstep, folder, True, STEPS + MORE)
        if whole.wait(60) != {0: 0, 1: 0}:
            sys.exit(f"killed_runs: the run that nobody kills failed\n{whole.log()}")
        weights, seconds = whole.digest(), time.monotonic() - began

        def kill(i):
            folder = pathlib.Path(temporary) / str(i)
            why, had_state = killed_once(options.lockstep, folder, f"{options.seed}.{i}", weights, seconds)
            if not why:
                shutil.rmtree(folder)
            return why, had_state

        for i, (why, had_state) in enumerate(in_parallel(JOBS, kill, range(options.count))):
            if why:
                sys.exit(f"killed_runs: seed {options.seed}.{i}: {why}")
            resumed += had_state
    print(f"killed_runs: {options.count} runs were killed, {resumed} of them with a checkpoint, and all ended with the weights "
          f"{weights} of a whole run ({seconds:.2f} s); nothing was left behind")
    if options.count >= 10 and resumed == 0:
        sys.exit("killed_runs: no run had a checkpoint when it was killed")


if __name__ == "__main__":
    main()
