"""lockstep's own engine behind the wire: it holds under every relation, and what is planted in it is found by the relation that
names it. `test_lockstep.py LOCKSTEP [NAME...]`"""
import json
import os
import subprocess
import sys
import unittest

from own_engine import scenarios
from lockstep_adapter import documents
from lockstep_adapter.relations import RELATIONS, Judge, Violated

LOCKSTEP = sys.argv.pop(1)
ENGINE = f"'{LOCKSTEP}' engine --device sim"
# Together the scenarios apply all relations.
APPLY = set(RELATIONS)
# fault: (scenario, the relation that finds it)
FAULTS = {
    "compute-ignores-reload": ("offload", "R2"),
    "reload-takes-another-slot": ("offload", "R3"),
    "delayed-offload-ignores-compute": ("experts", "R3"),
    "recompute-of-norms-left-out": ("eager", "R4"),
    "recompute-of-scans-left-out": ("eager", "R4"),
    "weights-not-gathered-after-the-optimizer": ("shards", "R5"),
    "target-of-the-next-document": ("offload", "R6"),
    "scan-keeps-state-across-documents": ("graphs", "R7"),
    "fallback-truncates-to-capacity": ("graphs", "R9"),
    "gradients-not-zeroed-at-step-start": ("offload", "R10"),
    "last-backward-pass-dropped": ("offload", "R11"),
    "router-losses-kept-by-slot": ("experts", "R11b"),
    "checkpoint-forgets-moments": ("eager", "R13"),
    "offload-copies-twice": ("offload in graphs", "R15"),
    "vectors-decay": ("long", "R16b"),
    "tied-gradient-overwritten": ("long", "R16c"),
}


def found_by(scenario, relations=RELATIONS, fault=""):
    """The relations that find something, in order, and those that apply."""
    command = ENGINE + (f" --plant '{fault}'" if fault else "")
    found, applied = [], set()
    with Judge(command, scenario, documents.Feed(scenario), deadline_s=20) as judge:
        for relation in relations:
            try:
                if judge(relation) is None:
                    applied.add(relation)
            except Violated as failure:
                found.append((relation, failure.judge))
    return found, applied


class OwnEngine(unittest.TestCase):
    def test_holds_under_every_relation(self):
        applied = set()
        for name, scenario in scenarios().items():
            with self.subTest(name):
                found, here = found_by(scenario)
                self.assertEqual(found, [])
                applied |= here
        self.assertEqual(applied, APPLY)

    def test_faults_are_found_by_their_relation(self):
        for fault, (name, relation) in FAULTS.items():
            with self.subTest(fault):
                found, _ = found_by(scenarios()[name], [relation], fault)
                self.assertEqual([relation for relation, _ in found], [relation])

    def test_the_wire(self):
        """What it cannot parse or do is answered; it ends with who started it."""
        def start():
            (reads, request), (reply, writes) = os.pipe(), os.pipe()
            variables = {**os.environ, "LOCKSTEP_ENGINE_FDS": f"{reads},{writes}"}
            engine = subprocess.Popen([LOCKSTEP, "engine", "--device", "sim"], pass_fds=(reads, writes), env=variables,
                                      stderr=subprocess.DEVNULL)
            os.close(reads)
            os.close(writes)
            return engine, request, os.fdopen(reply, "rb")

        engine, request, replies = start()

        def ask(line):
            os.write(request, line + b"\n")
            return json.loads(replies.readline())

        self.assertEqual(ask(b"{")["failed"], "protocol")
        self.assertEqual(ask(b"[]")["failed"], "protocol")
        self.assertEqual(ask(b'{"op":"run","id":7}'), {"failed": "protocol", "what": "no scenario", "id": 7})
        self.assertEqual(ask(b'{"op":"sing","id":8}'), {"unsupported": "sing", "id": 8})
        refused = ask(b'{"op":"check","id":9,"scenario":{"schema":1,"name":"a","cuda_graph":{"impl":"full_iteration"}}}')
        self.assertEqual(refused["refused"][0]["key"], "cuda_graph.impl")
        self.assertEqual(ask(b'{"op":"bye","id":10,"unknown":[]}'), {"ok": True, "id": 10})
        self.assertEqual(engine.wait(5), 0)
        os.close(request)
        replies.close()
        engine, request, replies = start()
        os.close(request)
        self.assertEqual(engine.wait(5), 0)
        replies.close()
        engine, request, replies = start()
        try:
            for _ in range(40):
                os.write(request, b"x" * (1 << 16))
        except BrokenPipeError:
            pass
        self.assertEqual(engine.wait(5), 3)
        os.close(request)
        replies.close()
        alone = subprocess.run([LOCKSTEP, "engine", "--device", "sim"], capture_output=True, check=False)
        self.assertEqual(alone.returncode, 2)


if __name__ == "__main__":
    unittest.main()
