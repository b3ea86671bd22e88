#!/usr/bin/env python3
"""Every report that the documents show is what its replay line prints now, but for the numbers of allocations."""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys


def plain(text):
    """One line, without the numbers that any allocation made before changes."""
    return re.sub(r"allocation \d+", "allocation N", " ".join(text.split()))


def shown(text):
    """The blocks of a document, of any language, that end in a replay line."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S):
        report = block[block.find("FAIL ") :] if "FAIL " in block else ""
        if "  replay: lockstep replay " in report:
            yield report


def replay_words(report):
    return shlex.split(report.split("  replay: lockstep ", 1)[1])


def difference(program, report):
    ran = subprocess.run([program, *replay_words(report), "--quiet"], capture_output=True, text=True, timeout=120)
    if ran.returncode != 1:
        return f"exit status {ran.returncode}, not 1: {ran.stderr.strip()}"
    return "" if plain(ran.stdout) == plain(report) else f"prints now:\n{ran.stdout}"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--root", required=True)
    options.add_argument("--lockstep", required=True)
    options = options.parse_args()
    assert list(shown("```\nFAIL x\n  replay: lockstep replay T\n```\n")) == ["FAIL x\n  replay: lockstep replay T\n"]
    assert len(list(shown("```sh\nls\n```\n```\nFAIL x\n  replay: lockstep replay T\n```\n"))) == 1
    assert plain("a\n  allocation 12 b") == "a allocation N b"
    root = pathlib.Path(options.root)
    seen = failed = 0
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for report in shown(path.read_text()):
            seen += 1
            wrong = difference(options.lockstep, report)
            if wrong:
                failed += 1
                print(f"{path.relative_to(root)}: {report.splitlines()[0]}\n{wrong}")
    print(f"{seen} reports, {failed} differ")
    return 1 if failed or seen < 5 else 0


if __name__ == "__main__":
    sys.exit(main())
