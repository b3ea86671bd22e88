"""Which relation finds which of the faults of lockstep's own engine: `faults_by_relation.py LOCKSTEP [--jobs N] [NAME...]`

Plants each fault of harness/inject/engine_fault_table.cpp in `lockstep engine`, asks
the scenarios of own_engine.py under every relation until one finds it, and prints a table in Markdown."""
import argparse
import concurrent.futures
import pathlib
import re
import sys

from own_engine import scenarios
from lockstep_adapter import documents
from lockstep_adapter.relations import RELATIONS, Judge, NotApplicable, Violated
from lockstep_adapter.world import EngineFailure

TABLE = pathlib.Path(__file__).resolve().parents[2] / "harness" / "inject" / "engine_fault_table.cpp"


def engine_faults():
    """(name, class) in the order of the table."""
    return re.findall(r'FaultRow\{\s*"([^"]+)",\s*k(\w+)', TABLE.read_text(encoding="utf-8"))


def found_by(lockstep, fault):
    """(relation, judge, scenario) of what finds the fault first, or None."""
    for name, scenario in scenarios().items():
        try:
            with Judge(f"'{lockstep}' engine --device sim --plant '{fault}'", scenario, documents.Feed(scenario), 20) as judge:
                for relation in RELATIONS:
                    try:
                        judge(relation)
                    except Violated as failure:
                        return relation, failure.judge, name
                    except EngineFailure as failure:
                        return relation, failure.judge, name
        except NotApplicable:
            continue
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    rows = [(name, kind) for name, kind in engine_faults() if not given.names or name in given.names]
    with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
        results = list(pool.map(found_by, [given.lockstep] * len(rows), [name for name, _ in rows]))
    print("| fault | class | relation | judge | scenario |\n|---|---|---|---|---|")
    for (name, kind), result in zip(rows, results):
        print(f"| `{name}` | {kind} | " + (" | ".join(result) if result else "none | | ") + " |")
    found = sum(result is not None for result in results)
    print(f"\n{found} of {len(rows)} ({100 * found / max(1, len(rows)):.1f} %)", file=sys.stderr)


if __name__ == "__main__":
    main()
