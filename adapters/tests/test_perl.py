"""The engine in Perl, written from docs/judge-your-engine.md alone, holds; what is planted in it is found. Exit status 77: no Perl here."""
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from lockstep_adapter import documents  # noqa: E402
from lockstep_adapter.relations import RELATIONS, Judge, Violated  # noqa: E402

try:
    subprocess.run(["perl", "-MJSON::PP", "-MDigest::SHA", "-e", "1"], check=True, capture_output=True)
except (OSError, subprocess.CalledProcessError) as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def outcome(option):
    """The relations that hold, and those that are violated."""
    scenario = documents.scenario(**{"model.hidden": 8, "model.vocab": 16})
    holds, violated = set(), set()
    with Judge(f"perl {HERE.parent / 'examples' / 'toy_engine.pl'} {option}", scenario, documents.Feed(scenario)) as judge:
        for relation in RELATIONS:
            try:
                if judge(relation) is None:
                    holds.add(relation)
            except Violated:
                violated.add(relation)
    return holds, violated


class Perl(unittest.TestCase):
    def test_holds(self):
        self.assertEqual(outcome(""), ({"R1", "R6", "R7", "R10", "R11", "R12", "R15"}, set()))

    def test_a_leak_is_found(self):
        self.assertEqual(outcome("--leak")[1], {"R6", "R7"})

    def test_overwritten_gradients_are_found(self):
        self.assertEqual(outcome("--overwrite")[1], {"R11"})


if __name__ == "__main__":
    unittest.main()
