#!/usr/bin/env python3
"""Every line of docs/fault-classes.md names faults that `lockstep mutate` plants, or says why it does not apply."""
import argparse
import pathlib
import re
import subprocess
import sys


def rows(text):
    """(number, what is planted) of each line of a table whose first cell is a letter and a number."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and re.fullmatch(r"[A-Z]\d+", cells[0]):
            yield cells[0], cells[2]


def wrong(planted, known):
    """What is wrong with a last cell, or ""."""
    names = [name for name in re.findall(r"`([^`]+)`", planted) if "." not in name]
    unknown = [name for name in names if name not in known]
    if unknown:
        return "no fault " + ", ".join(unknown)
    return "" if names or re.match(r"does not apply: \S", planted) else "neither a fault nor a reason"


def known_names(program):
    """Of --list: the names, and `operator/*` for each operator at the device door."""
    # The names do not depend on the cases; some dozens of them have calls for every operator.
    listed = subprocess.run([program, "mutate", "--list", "--scenarios", "60"], capture_output=True, text=True, timeout=300, check=True)
    names = set()
    for line in listed.stdout.splitlines():
        name = line.split()[-1]
        names.add(name.split("/")[0] + "/*" if line.startswith("systematic") else name)
    return names


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--root", required=True)
    options.add_argument("--lockstep", required=True)
    options = options.parse_args()
    assert list(rows("| | bug | x |\n|---|---|---|\n| A1 | b | `c` |\n")) == [("A1", "`c`")]
    assert wrong("`a`, `d/*`", {"a", "d/*"}) == "" and wrong("does not apply: none here", set()) == ""
    assert wrong("`b`", {"a"}) and wrong("", set()) and wrong("does not apply:", set())
    known = known_names(options.lockstep)
    text = (pathlib.Path(options.root) / "docs/fault-classes.md").read_text()
    seen = list(rows(text))
    failed = [f"{number}: {said}" for number, planted in seen if (said := wrong(planted, known))]
    beyond = text[text.index("Beyond the lists:") : text.index("## Offloading")]
    failed += [f"beyond: {said}" for said in [wrong(beyond, known)] if said]
    print("\n".join(failed))
    print(f"{len(seen)} classes, {len(failed)} wrong, {len(known)} names")
    return 1 if failed or len(seen) != 31 + 36 + 42 + 18 + 42 else 0


if __name__ == "__main__":
    sys.exit(main())
