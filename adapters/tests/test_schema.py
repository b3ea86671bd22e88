"""The package's copies of what the schema says agree with `lockstep describe`: test_schema.py PATH-OF-LOCKSTEP."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lockstep_adapter import documents  # noqa: E402

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
LOCKSTEP = ""


def described(scenario):
    with tempfile.TemporaryDirectory() as folder:
        file, answer = pathlib.Path(folder) / "scenario.json", pathlib.Path(folder) / "answer.json"
        file.write_text(json.dumps(scenario))
        subprocess.run([LOCKSTEP, "describe", "--quiet", file, "--json", answer], check=True, stdout=subprocess.DEVNULL)
        return json.loads(answer.read_text())


class Schema(unittest.TestCase):
    def test_the_neutral_scenario_has_every_key_and_is_canonical(self):
        neutral = documents.scenario()
        answer = described(neutral)
        self.assertTrue(answer["legal"])
        self.assertEqual(answer["scenario"], neutral)
        self.assertEqual(json.dumps(answer["scenario"]), json.dumps(neutral))  # The order of keys too.

    def test_parameters_have_the_names_and_shapes_of_the_schema(self):
        for keys in ({"model.pattern": "M*-ME-*"}, {"model.pattern": "*E-", "model.mlp.activation": "swiglu"},
                     {"model.pattern": "-*", "model.tied_embedding": True, "model.attention.kv_heads": 2},
                     {"model.pattern": "E", "model.moe.shared_hidden": 8, "model.mlp.activation": "swiglu"}):
            scenario = documents.scenario(**keys)
            ours = [(name, *([1] * (2 - len(shape)) + shape)) for name, shape in documents.parameter_shapes(scenario["model"]).items()]
            theirs = [(p["name"], p["rows"], p["cols"]) for p in described(scenario)["parameters"]]
            self.assertEqual(ours, theirs, keys)

    def test_scenarios_of_known_failures_are_legal_and_small(self):
        for name in ("pytorch_181723", "megatron_fsdp_5974", "megatron_local_4433"):
            with tempfile.TemporaryDirectory() as folder:
                answer = pathlib.Path(folder) / "answer.json"
                subprocess.run([LOCKSTEP, "describe", "--quiet", EXAMPLES / f"{name}.yaml", "--json", answer], check=True,
                               stdout=subprocess.DEVNULL)
                described = json.loads(answer.read_text())
            self.assertTrue(described["legal"], name)
            self.assertLessEqual(sum(len(pack) for step in described["scenario"]["data"]["documents"] for pack in step), 2, name)


if __name__ == "__main__":
    LOCKSTEP = sys.argv.pop(1)
    unittest.main()
