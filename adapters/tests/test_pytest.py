"""The pytest plugin makes one test of each relation. Exit status 77: pytest cannot be imported here."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ADAPTERS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ADAPTERS))
from lockstep_adapter.relations import RELATIONS  # noqa: E402

try:
    import pytest  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


class Plugin(unittest.TestCase):
    def ran(self, engine):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "toy.lockstep.json"
            path.write_text('{"engine": "%s %s", "scenarios": {"plain": {"model.mlp.hidden": 8}}}' % (sys.executable, engine))
            command = [sys.executable, "-m", "pytest", "-p", "lockstep_adapter.pytest_plugin", "-q", "-rs", "-p", "no:cacheprovider", str(path)]
            done = subprocess.run(command, env={"PYTHONPATH": str(ADAPTERS), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
            return done.returncode, done.stdout

    def test_a_good_engine_passes(self):
        status, said = self.ran(ADAPTERS / "examples" / "toy_engine.py")
        self.assertEqual(status, 0, said)
        self.assertIn("no graphs", said)
        self.assertIn(f"10 passed, {len(RELATIONS) - 10} skipped", said)

    def test_a_wrong_engine_fails_by_its_relation(self):
        status, said = self.ran(f"{ADAPTERS / 'tests' / 'buggy_toys.py'} overwrites-gradients")
        self.assertEqual(status, 1, said)
        self.assertIn("R11 plain: R11: ", said)


if __name__ == "__main__":
    unittest.main()
