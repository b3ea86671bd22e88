#!/usr/bin/env python3
"""Strangers who speak to ranks of `lockstep train` over loopback, each attack with what must come of it.

  network.py --lockstep PATH [--only NAME] [--list] [--old]

--old speaks as it was before there were keys and seals: for a program of that time, at which each attack succeeds. A line for
each that is wrong; exit status 1 then.
"""
import argparse
import os
import pathlib
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from ranks import JOBS, free_port, in_parallel  # noqa: E402
from wire import Peer, a_call  # noqa: E402

SCENARIO = "schema: 1\nname: net\nparallel: {data: RANKS, transport: auto}\ntraining: {steps: 4}\n"
RUN = b"jobx-127.0.0.1-1"
KEY = "k" * 64
DEADLINE = 4
MIB = 1 << 20


class Rank:
    """A rank of `lockstep train` as a launcher starts it."""

    def __init__(self, place, rank, port, ranks=2, key=None, files=None, megabytes=None, host="127.0.0.1", deadline=DEADLINE):
        scenario = place.folder / f"{ranks}.yaml"
        scenario.write_text(SCENARIO.replace("RANKS", str(ranks)))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_MEETING")}
        environment.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TORCHELASTIC_RUN_ID="jobx", TMPDIR=str(place.folder))
        if key:
            environment["LOCKSTEP_MEETING_KEY"] = key

        def limits():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            if megabytes:
                resource.setrlimit(resource.RLIMIT_AS, (megabytes * MIB,) * 2)

        self.log = place.folder / f"{rank}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [place.lockstep, "train", "--quiet", "--device", "sim", "--deadline", str(deadline), "--meeting", f"{host}:{port}",
                 str(scenario)], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=limits)
        place.started.append(self.process)

    def wait(self, seconds=DEADLINE + 8):
        """Its exit status; None if it does not end."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def words(self):
        return self.log.read_text(errors="replace")

    def weights(self):
        return re.findall(r"weights ([0-9a-f]{32})", self.words())[-1:]

    def resident(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text()).group(1)) / 1024

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Place:
    """What one attack uses."""

    def __init__(self, lockstep, old, folder):
        self.lockstep, self.old, self.folder, self.port, self.started = lockstep, old, pathlib.Path(folder), free_port(), []

    def rank(self, rank, **more):
        return Rank(self, rank, self.port, **more)

    def peer(self, **more):
        return Peer.connected(self.port, self.old, **more)

    def listener(self):
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", self.port))
        door.listen(4)
        door.settimeout(10)
        return door

    def accept(self, door):
        return Peer(door.accept()[0], self.old)


ATTACKS = {}


def attack(function):
    ATTACKS[function.__name__.replace("_", "-")] = function
    return function


def ended_with_a_sentence(rank, words, statuses=(3, 4)):
    status, said = rank.wait(), rank.words()
    if status not in statuses:
        yield f"status {status}, not one of {statuses}: {said[-200:]!r}"
    if words not in said:
        yield f"it does not say {words!r}: {said[-300:]!r}"
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", said):
        yield f"it prints a control character: {said[-300:]!r}"


def both_end_well(place, first, **more):
    """An honest rank 1 comes, and the run ends as if nobody else were there."""
    second = place.rank(1, **more)
    statuses = second.wait(20), first.wait(20)
    if statuses != (0, 0):
        yield f"ranks 1 and 0 ended with {statuses}: {second.words()[-200:]!r} {first.words()[-200:]!r}"


# ---- 1: one frame ----------------------------------------------------------------------------------------------------------

def answered(place, body, words, number=1, call=None):
    """Rank 0, to whose first post a stranger in the place of rank 1 answers with this one."""
    rank = place.rank(0)
    peer = place.peer()
    if not peer.ask_to_join(1, 2, RUN):
        yield "the stranger could not join"
    post = peer.hear_until("post")
    peer.say("post", 1, number, body, call or post.call)
    yield from ended_with_a_sentence(rank, words)


@attack
def empty_post(place):
    return answered(place, b"", "rank 1 posted 0 bytes, and 8 are needed")


@attack
def post_of_an_enormous_length(place):
    return answered(place, struct.pack("<Q", 1 << 60) + b"A" * 16, "rank 1 announces 1152921504606846976 bytes of words")


@attack
def post_shorter_than_it_says(place):
    return answered(place, struct.pack("<Q", 4000) + b"lockstep", "rank 1 posted 16 bytes, and 4008 are needed")


@attack
def post_shorter_than_it_says_by_far(place):
    return answered(place, struct.pack("<Q", 60000) + b"A" * 8000, "rank 1 posted 8008 bytes, and 60008 are needed")


@attack
def post_of_a_later_round(place):
    return answered(place, struct.pack("<Q", 0), "rank 1 posted round 1000, and 1 is its next", number=1000)


@attack
def post_of_no_call(place):
    return answered(place, struct.pack("<Q", 0), "posted no call", call=a_call(0, 99))


@attack
def post_with_escapes(place):
    return answered(place, struct.pack("<Q", 0), "rank", call=a_call(0, 1, b"\x1b[31mX\x07"))


@attack
def empty_post_of_a_rogue_rank_0(place):
    door = place.listener()
    rank = place.rank(1)
    peer = place.accept(door)
    peer.answer_one_who_joins()
    post = peer.hear_until("post")
    if post is None:
        yield "rank 1 posted nothing"
        return
    peer.say("post", 0, 1, b"", post.call)
    yield from ended_with_a_sentence(rank, "rank 0 posted 0 bytes")


@attack
def escapes_in_a_refusal(place):
    door = place.listener()
    rank = place.rank(1)
    peer = place.accept(door)
    peer.answer_one_who_joins("refused", b"\x1b]0;pwn\x07\x1b[31mred")
    yield from ended_with_a_sentence(rank, "refused", (2,))


# ---- 2: secrets ------------------------------------------------------------------------------------------------------------

def told_to_strangers(place, ranks_claimed, run, secrets):
    rank = place.rank(0, ranks=3)
    answer = place.peer().ask_to_join(1, ranks_claimed, run)
    said = answer.body if answer else b""
    for secret in secrets:
        if secret in said:
            yield f"it tells {said!r}"
            return
    rank.process.kill()


@attack
def name_of_the_run_is_told(place):
    return told_to_strangers(place, 3, b"guess", [b"jobx"])


@attack
def number_of_ranks_is_told(place):
    return told_to_strangers(place, 2, RUN, [b"3"])


@attack
def stolen_rank_decides_the_weights(place):
    honest = [place.rank(rank, key=KEY) for rank in (0, 1)]
    if [one.wait(20) for one in honest] != [0, 0]:
        yield f"the honest run failed: {honest[0].words()}"
    weights = honest[0].weights()
    place.port = free_port()
    rank = place.rank(0, key=KEY)
    peer = place.peer()
    joined = peer.ask_to_join(1, 2, RUN)
    second = place.rank(1, key=KEY)
    if joined and joined.kind == "welcome":
        for _ in range(100):
            post = peer.hear_until("post", "ended", "failed")
            if post is None or post.kind != "post":
                break
            # Its own words once, as every rank has the same; zeros for all else.
            body = post.body if post.number == 1 else bytes(len(post.body))
            peer.say("post", 1, post.number, body, post.call)
        peer.say("ended", 1)
        peer.close()
    statuses = rank.wait(20), second.wait(20)
    if statuses != (0, 0) or rank.weights() != weights:
        yield f"ranks 0 and 1 ended with {statuses}, weights {rank.weights()}, and honest ones are {weights}"


@attack
def rank_0_listens_where_it_was_not_told(place):
    rank = place.rank(0)
    place.peer().close()  # It listens.
    if peer := place.peer(host="127.0.0.2", seconds=0.2):
        yield "it listens at 127.0.0.2 as well"
        peer.close()
    yield from both_end_well(place, rank)


@attack
def rank_says_the_run_to_whoever_listens(place):
    door = place.listener()
    rank = place.rank(1, key=KEY)
    said, _ = place.accept(door).answer_one_who_joins("refused")
    if b"jobx" in said:
        yield f"it says {said!r}"
    yield from ended_with_a_sentence(rank, "does not have the same key", (2,))


@attack
def refused_stranger_says_hello_again(place):
    rank = place.rank(0)
    peer = place.peer()
    if peer.ask_to_join(7, 2, RUN).kind != "refused":
        yield "rank 7 of 2 is not refused"
    seal, peer.seal = peer.seal, None
    again = peer.ask_to_join(1, 2, RUN)
    if again and again.kind == "welcome":
        yield "the second hello of a refused connection is welcome"
    peer.seal = seal
    yield from both_end_well(place, rank)


@attack
def stranger_without_the_key_ends_the_run(place):
    rank = place.rank(0, key=KEY)
    peer = place.peer()
    peer.ask_to_join(1, 2, RUN)
    peer.say("failed", 1)
    peer.close()
    yield from both_end_well(place, rank, key=KEY)


# ---- 4: strangers ----------------------------------------------------------------------------------------------------------

@attack
def announced_bodies_fill_the_memory(place):
    rank = place.rank(0, deadline=15)
    peers = []
    for _ in range(800):
        if not (peer := place.peer(seconds=2)):
            break
        peers.append(peer)
        peer.say("post" if place.old else "hello", announced=MIB)
    most, end = 0, time.monotonic() + 1
    while time.monotonic() < end and rank.process.poll() is None and most < 150:
        most = max(most, rank.resident())
        time.sleep(0.05)
    if most >= 150:
        yield f"{len(peers)} connections take {most:.0f} MiB"
    yield from both_end_well(place, rank, deadline=15)
    for peer in peers:
        peer.close()


@attack
def idle_connections_take_all_files(place):
    rank = place.rank(0, files=64, deadline=15)
    peers = [place.peer() for _ in range(70)]
    time.sleep(0.2)
    before = rank.cpu()
    time.sleep(1.5)
    if (spent := rank.cpu() - before) > 0.4:
        yield f"it computes for {spent:.2f} s of 1.5 s"
    yield from both_end_well(place, rank, deadline=15)
    del peers


def flood(peer, origin):
    for number in range(1, 1500):
        if not peer.say("post", origin, number, bytes(MIB), a_call(number - 1)):
            return


@attack
def posts_without_an_end(place):
    rank = place.rank(0, megabytes=900, deadline=20)
    peer = place.peer()
    peer.ask_to_join(1, 2, RUN)
    flood(peer, 1)
    yield from ended_with_a_sentence(rank, "rank 1")


@attack
def posts_without_an_end_while_a_rank_is_missing(place):
    rank = place.rank(0, ranks=3, megabytes=900, deadline=20)
    peer = place.peer()
    peer.ask_to_join(1, 3, RUN)
    flood(peer, 1)
    yield from ended_with_a_sentence(rank, "rank 1")


@attack
def posts_without_an_end_of_a_rogue_rank_0(place):
    door = place.listener()
    rank = place.rank(1, megabytes=900, deadline=20)
    peer = place.accept(door)
    peer.answer_one_who_joins()
    flood(peer, 0)
    yield from ended_with_a_sentence(rank, "rank 0")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--only")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--old", action="store_true")
    options = parser.parse_args()
    chosen = {name: run for name, run in ATTACKS.items() if options.only in (None, name)}
    if options.list:
        return print("\n".join(chosen))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))

    def run(name):
        with tempfile.TemporaryDirectory() as folder:
            place = Place(os.path.abspath(options.lockstep), options.old, folder)
            try:
                return "; ".join(chosen[name](place))
            except (OSError, AttributeError) as error:  # The other side is not there any more.
                return f"the stranger was left alone: {error}; " + "; ".join(
                    f"status {one.poll()}" for one in place.started)
            finally:
                for one in place.started:
                    if one.poll() is None:
                        one.send_signal(signal.SIGKILL)
                    one.wait()

    failed = 0
    for name, wrong in zip(chosen, in_parallel(JOBS, run, chosen)):
        if wrong:
            failed += 1
            print(f"{name}: {wrong}")
    print(f"network: {len(chosen) - failed} of {len(chosen)} attacks fail")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
