"""The toy engine holds under every relation that it announces, and each of its faults is found as it should be."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from buggy_toys import FAULTS  # noqa: E402
from lockstep_adapter import documents, read_file  # noqa: E402
from lockstep_adapter.relations import RELATIONS, Judge, Violated  # noqa: E402
from lockstep_adapter.world import EngineFailure, World  # noqa: E402

TOY = f"{sys.executable} {HERE.parent / 'examples' / 'toy_engine.py'}"
# Relations that say something about the scenario below; the others have nothing to do on an engine without machinery.
APPLY = {"R1", "R6", "R7", "R8", "R9", "R10", "R11", "R12", "R13", "R15"}


def small(**keys):
    return documents.scenario(**{"training.steps": 2, "model.hidden": 8, "model.vocab": 16, "model.mlp.hidden": 8, **keys})


def found_by(command, scenario, **more):
    """The judge that finds something, or None if all hold."""
    try:
        with Judge(command, scenario, documents.Feed(scenario), **more) as judge:
            for relation in RELATIONS:
                judge(relation)
    except (Violated, EngineFailure) as failure:
        return failure.judge
    return None


def stay(word):
    """Whether a process whose command line has the word is still there after 5 seconds."""
    for _ in range(50):
        if not any(word in command for command in commands()):
            return False
        time.sleep(0.1)
    return True


def commands():
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield entry.read_text().replace("\0", " ")
        except OSError:
            continue


class Toy(unittest.TestCase):
    def test_holds_under_what_it_announces(self):
        variants = [{}, {"data.align": 8, "data.gaps": 2, "data.tail": "append_dummy_seq", "data.pack_length": 48},
                    {"training.optimizer.clip": 0.01, "training.microbatches": 3, "model.pattern": "---"},
                    {"training.eval_every": 1, "training.optimizer.betas": [0.0, 0.5]}]
        for keys in variants:
            scenario = small(**keys)
            with Judge(TOY, scenario, documents.Feed(scenario)) as judge:
                applied = {relation for relation in RELATIONS if judge(relation) is None}
            self.assertEqual(applied, APPLY, keys)

    def test_refuses_what_it_cannot_do(self):
        with World(TOY) as world:
            refused = world.ask("check", scenario=small(**{"model.mlp.activation": "swiglu"}))[0]["refused"]
        self.assertEqual(refused[0]["key"], "model.mlp.activation")

    def test_trains(self):
        """The loss of equal documents falls."""
        scenario = small(**{"training.steps": 12, "training.optimizer.lr": 0.05})
        feed = documents.Feed(scenario)
        feed.packs = {key: feed.packs["training", 0] for key in feed.packs}
        with Judge(TOY, scenario, feed) as judge:
            names = [f"token_loss:token_loss@{step}.0" for step in (0, 11)]
            folder, to = feed.write(judge.world.folder / "feed"), judge.world.folder / "dumped"
            judge.world.ask("dump", scenario=scenario, feed=folder, observe=["token_loss"], tensors=names, to=str(to))
            tensors = read_file(to)
            losses = [sum(tensors[name].values()) for name in names]
        self.assertLess(losses[1], 0.8 * losses[0])


class Faults(unittest.TestCase):
    def test_each_is_found_by_its_judge(self):
        for name, (_, judge) in FAULTS.items():
            with self.subTest(name):
                seconds = {"deadline_s": 2} if name == "hangs" else {}
                command = f"{sys.executable} {HERE / 'buggy_toys.py'} {name}"
                started = time.monotonic()
                self.assertEqual(found_by(command, small(), **seconds), judge)
                self.assertLess(time.monotonic() - started, 30)
                self.assertFalse(stay(f"{HERE / 'buggy_toys.py'} {name}"))
                self.assertFalse(stay(f"sleep 1000.{os.getpid()}"))


class Wire(unittest.TestCase):
    """The engine's end against requests that only these tests make."""

    def setUp(self):
        (self.reads, self.request), (self.reply, self.writes) = os.pipe(), os.pipe()
        variables = {**os.environ, "LOCKSTEP_ENGINE_FDS": f"{self.reads},{self.writes}"}
        self.engine = subprocess.Popen(TOY.split(), env=variables, pass_fds=(self.reads, self.writes), stderr=subprocess.DEVNULL)
        os.close(self.reads)
        os.close(self.writes)
        self.answers = os.fdopen(self.reply, "rb")

    def tearDown(self):
        if self.request is not None:
            os.close(self.request)
        self.engine.kill()
        self.engine.wait()
        self.answers.close()

    def ask(self, line):
        os.write(self.request, line + b"\n")
        return json.loads(self.answers.readline())

    def test_answers_what_it_cannot_parse(self):
        self.assertEqual(self.ask(b"{")["failed"], "protocol")
        self.assertEqual(self.ask(b"[]")["failed"], "protocol")
        self.assertEqual(self.ask(b'{"op":"check","id":7}')["id"], 7)
        self.assertEqual(self.ask(b'{"op":"sing","id":8}'), {"id": 8, "unsupported": "sing"})
        self.assertEqual(self.ask(b'{"op":"bye","id":9,"unknown":[]}'), {"id": 9, "ok": True})
        self.assertEqual(self.engine.wait(5), 0)

    def test_ends_when_lockstep_is_gone(self):
        os.close(self.request)
        self.request = None
        self.assertEqual(self.engine.wait(5), 0)

    def test_ends_at_a_line_that_is_too_long(self):
        try:
            for _ in range(20):
                os.write(self.request, b"x" * (1 << 16))
        except BrokenPipeError:
            pass
        self.assertEqual(self.engine.wait(5), 3)


class Play(unittest.TestCase):
    def test_a_log_is_played_without_lockstep(self):
        with tempfile.TemporaryDirectory() as folder:
            scenario = small()
            feed = documents.Feed(scenario).write(pathlib.Path(folder) / "feed")
            requests = [{"op": "hello", "protocol": 1, "rank": 0, "ranks": 1, "folder": folder},
                        {"op": "run", "scenario": scenario, "feed": feed, "observe": ["gradient"]}, {"op": "bye"}]
            log = pathlib.Path(folder) / "log"
            log.write_text("# start\n" + "".join(f"> {json.dumps({**r, 'id': i + 1})}\n< {{}}\n" for i, r in enumerate(requests)))
            said = subprocess.run([*TOY.split(), "--play", str(log)], capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertEqual(len(said), 3)
        self.assertIn('"sha256"', said[1])


if __name__ == "__main__":
    unittest.main()
