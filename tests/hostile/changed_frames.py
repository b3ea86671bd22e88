#!/usr/bin/env python3
"""Ranks that have a key, beside somebody who changes what goes over the network.

  changed_frames.py --lockstep PATH [--count 1000] [--seed 1]

What two honest ranks say to each other is recorded once. Then, --count times, one random change of it (bytes flipped, left
out, put in or repeated, frames swapped or repeated, an early end) is
  - said to rank 0 by strangers, three beside each honest run: it must end with status 0, the same weights, in time;
  - said to a rank 1 by a stranger in the place of rank 0: it must refuse, in time;
  - made on the way between the two ranks, to the bytes of their own connection: both end in time, and no rank that ends
    with status 0 has other weights.
In time: within the deadline of the ranks and a margin for starting. Exit status: 0, or 1 with the seed of what failed.
"""
import argparse
import pathlib
import random
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from ranks import JOBS, Ranks, free_port, in_parallel  # noqa: E402

KEY, OTHER_KEY = "k" * 64, "o" * 64
STEPS, DEADLINE, MARGIN = 20, 3, 4
MAGIC = struct.pack("<I", 0x4C534E37)  # FrameHead::kMagic


def frames_of(data):
    """The bytes cut where a frame begins."""
    first, *others = data.split(MAGIC)
    return [first] + [MAGIC + one for one in others]


def changed(data, draw):
    """`data` with one random change."""
    kind = draw.randrange(8)
    at = draw.randrange(len(data)) if data else 0
    some = min(len(data) - at, 1 << draw.randrange(8))
    frames = frames_of(data)
    one, other = draw.randrange(len(frames)), draw.randrange(len(frames))
    if kind == 0 and data:
        return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1:]
    if kind == 1:
        return data[:at] + data[at + some:]
    if kind == 2:
        return data[:at] + draw.randbytes(some) + data[at:]
    if kind == 3:
        return data[:at] + data[at:at + some] + data[at:]
    if kind == 4:
        frames[one], frames[other] = frames[other], frames[one]
    elif kind == 5:
        frames.insert(other, frames[one])
    elif kind == 6:
        del frames[one]
    else:
        return data[:at]
    return b"".join(frames)


def connect(port, seconds=5):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1)
        except OSError:
            time.sleep(0.005)
    return None


def listener():
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", 0))
    one.listen(4)
    one.settimeout(5)
    return one


def drain(connection, seconds):
    """Reads until the other side closes, or for so long."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except OSError:
        pass


class Between:
    """Stands between rank 1 and rank 0, records both directions, and may change one of them once."""

    def __init__(self, port, change=None):
        self.port, self.change = port, change  # (direction, bytes to wait for, draw)
        self.heard = {"to 0": b"", "to 1": b""}
        self.door = listener()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        try:
            inner, _ = self.door.accept()
        except OSError:
            return
        outer = connect(self.port)
        if outer is None:
            return inner.close()
        both = [threading.Thread(target=self.pump, args=pair, daemon=True)
                for pair in ((inner, outer, "to 0"), (outer, inner, "to 1"))]
        for one in both:
            one.start()
        for one in both:
            one.join()
        inner.close()
        outer.close()

    def pump(self, source, sink, direction):
        source.settimeout(30)
        try:
            while data := source.recv(65536):
                self.heard[direction] += data
                if self.change and self.change[0] == direction and len(self.heard[direction]) > self.change[1]:
                    draw, self.change = self.change[2], None
                    data = changed(data, draw)
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):  # An early end too is passed on.
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def honest(lockstep, folder):
    return Ranks(lockstep, folder, STEPS, key=KEY, deadline=DEADLINE)


def record(lockstep, folder):
    ranks, port = honest(lockstep, folder), free_port()
    between = Between(port)
    ranks.start(0, f"127.0.0.1:{port}")
    ranks.start(1, f"127.0.0.1:{between.door.getsockname()[1]}")
    ended = ranks.wait(30)
    between.thread.join(10)
    if ended != {0: 0, 1: 0} or not ranks.digest() or not between.heard["to 0"]:
        sys.exit(f"changed_frames: the honest run failed: {ended}\n{ranks.log()}")
    return ranks.digest(), between.heard


def beside(lockstep, folder, heard, draw, strangers):
    """Strangers come first, so that rank 0 still listens."""
    ranks, port = honest(lockstep, folder), free_port()
    words_of_all = [changed(heard["to 0"], draw) for _ in range(strangers)]
    began = time.monotonic()
    ranks.start(0, f"127.0.0.1:{port}")

    def speak(words):
        connection = connect(port)
        if connection:
            try:
                connection.sendall(words)
                drain(connection, 0.2)
            except OSError:
                pass
            connection.close()

    speakers = [threading.Thread(target=speak, args=(words,)) for words in words_of_all]
    for one in speakers:
        one.start()
    time.sleep(0.05)
    ranks.start(1, f"127.0.0.1:{port}")
    ended = ranks.wait(DEADLINE + MARGIN)
    took = time.monotonic() - began
    for one in speakers:
        one.join()
    return ended == {0: 0, 1: 0} and took < DEADLINE + MARGIN, ended, ranks


def instead(lockstep, folder, heard, draw):
    """A rank 1 that finds a stranger where rank 0 should be."""
    ranks, door = honest(lockstep, folder), listener()
    words = changed(heard["to 1"], draw)
    ranks.start(1, f"127.0.0.1:{door.getsockname()[1]}")

    def speak():
        try:
            connection, _ = door.accept()
            connection.sendall(words)
            drain(connection, DEADLINE)
            connection.close()
        except OSError:
            pass

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    ended = ranks.wait(DEADLINE + MARGIN)
    door.close()
    return ended[1] not in (0, None), ended, ranks


def between(lockstep, folder, heard, draw):
    direction = draw.choice(["to 0", "to 1"])
    ranks, port = honest(lockstep, folder), free_port()
    middle = Between(port, (direction, draw.randrange(len(heard[direction])), draw))
    ranks.start(0, f"127.0.0.1:{port}")
    ranks.start(1, f"127.0.0.1:{middle.door.getsockname()[1]}")
    ended = ranks.wait(2 * DEADLINE + MARGIN)  # To come together, and then to miss a rank.
    middle.door.close()
    return None not in ended.values() and -11 not in ended.values() and -6 not in ended.values(), ended, ranks


def without_the_key(lockstep, folder):
    for key in (OTHER_KEY, None):
        ranks, port = honest(lockstep, folder), free_port()
        ranks.start(0, f"127.0.0.1:{port}")
        stranger = Ranks(lockstep, folder + "/stranger", STEPS, key=key, deadline=DEADLINE)
        stranger.start(1, f"127.0.0.1:{port}")
        refused = stranger.wait(DEADLINE + MARGIN)
        ranks.start(1, f"127.0.0.1:{port}")
        ended = ranks.wait(DEADLINE + MARGIN)
        yield refused[1] == 2 and ended == {0: 0, 1: 0}, (refused, ended), ranks


class Failed(Exception):
    pass


def plan(seed, count):
    """(number, kind, changes) of each run, until there are `count` changes."""
    draw, planned, done = random.Random(seed), [], 0
    while done < count:
        kind = ("beside", "instead", "between", "between")[draw.randrange(4)]
        changes = min(3, count - done) if kind == "beside" else 1
        planned.append((len(planned), kind, changes))
        done += changes
    return planned


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count = {"beside": 0, "instead": 0, "between": 0, "stopped": 0, "unharmed": 0}
    with tempfile.TemporaryDirectory() as folder:
        weights, heard = record(options.lockstep, folder + "/recorded")

        def judge(seed, good, ended, ranks):
            finished = 0 in ended.values() if isinstance(ended, dict) else True
            if good and (not finished or not ranks.digest() or ranks.digest() == weights):
                return
            raise Failed(f"seed {seed}: status {ended}, weights {ranks.digest()} and not {weights}\n{ranks.log()}")

        def change(planned):
            number, kind, changes = planned
            seed = f"{options.seed}.{number}"
            draw, place = random.Random(seed), f"{folder}/{number}"
            if kind == "beside":
                good, ended, ranks = beside(options.lockstep, place, heard, draw, changes)
            else:
                good, ended, ranks = (instead if kind == "instead" else between)(options.lockstep, place, heard, draw)
            judge(seed, good, ended, ranks)
            shutil.rmtree(place)
            return kind, changes, ended

        try:
            for good, ended, ranks in without_the_key(options.lockstep, folder + "/keys"):
                judge("of the keys", good, ended, ranks)
            for kind, changes, ended in in_parallel(JOBS, change, plan(options.seed, options.count)):
                count[kind] += changes
                count["unharmed" if ended == {0: 0, 1: 0} else "stopped"] += kind == "between"
        except Failed as failure:
            sys.exit(f"changed_frames: {failure}")
    done = count["beside"] + count["instead"] + count["between"]
    print(f"changed_frames: {done} changes: {count['beside']} said beside honest runs, {count['instead']} in the place of "
          f"rank 0, {count['between']} on the way ({count['stopped']} stopped the run in time, {count['unharmed']} came "
          "behind its last frame); no weight changed")


if __name__ == "__main__":
    main()
