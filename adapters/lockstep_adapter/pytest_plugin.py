"""One test a relation, for who stays in pytest. A file NAME.lockstep.json is collected:

{"engine": "python3 my_adapter.py", "scenarios": {"graphs": {"model.pattern": "*-", "cuda_graph.impl": "partial"}}}

Keys are those of a scenario; the others are neutral. A relation that says nothing about a scenario is skipped, with the reason.
lockstep itself is not needed: it draws, shrinks and replays scenarios, which this does not."""
import json

import pytest

from . import documents
from .relations import RELATIONS, Judge, NotApplicable, Violated
from .world import EngineFailure


def pytest_collect_file(file_path, parent):
    return LockstepFile.from_parent(parent, path=file_path) if file_path.name.endswith(".lockstep.json") else None


class LockstepFile(pytest.File):
    def collect(self):
        asked = json.loads(self.path.read_text(encoding="utf-8"))
        for name, keys in asked["scenarios"].items():
            yield ScenarioTests.from_parent(self, name=name, engine=asked["engine"], keys=keys)


class ScenarioTests(pytest.Collector):
    """The relations of one scenario share an engine and its first run."""

    def __init__(self, *, engine, keys, **named):
        super().__init__(**named)
        self.engine, self.keys, self._judge = engine, keys, None

    def collect(self):
        for relation, (name, _) in RELATIONS.items():
            yield RelationTest.from_parent(self, name=f"{relation}-{name}", relation=relation)

    def judge(self):
        if self._judge is None:
            scenario = documents.scenario(**self.keys)
            self._judge = Judge(self.engine, scenario, documents.Feed(scenario))
        return self._judge

    def teardown(self):
        if self._judge is not None:
            self._judge.close()
            self._judge = None


class RelationTest(pytest.Item):
    def __init__(self, *, relation, **named):
        super().__init__(**named)
        self.relation = relation

    def runtest(self):
        try:
            reason = self.parent.judge()(self.relation)
        except NotApplicable as refused:
            reason = str(refused)
        except EngineFailure:
            self.parent.teardown()  # The next relation gets another engine.
            raise
        if reason is not None:
            pytest.skip(reason)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, (Violated, EngineFailure)):
            return f"{self.relation} {self.parent.name}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, None, f"{self.parent.name} {self.name}"
