#!/usr/bin/env python3
"""The tables that the program prints stand in the documentation as it prints them. `--fix` writes them anew."""
import argparse
import pathlib
import re
import subprocess
import sys

DOCUMENTS = ("docs/scenario-reference.md",)
COMMAND = "python3 tests/style/generated_docs.py --root . --lockstep build/bin/lockstep --fix"
BLOCK = re.compile(r"<!-- begin: (?P<words>[^\n]*) -->\n(?P<table>.*?)<!-- end -->", re.DOTALL)


def renewed(text, printed):
    """The text with each block as `printed` gives it for the block's words."""
    return BLOCK.sub(lambda block: f"<!-- begin: {block['words']} -->\n{printed(block['words'])}<!-- end -->", text)


def holes(table):
    """Rows of a table of keys or rules that lack a cell which may not be empty."""
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        needed = [0, 1, 2, 3, 5] if len(cells) == 7 else [0, 1, 2, 3]
        if len(cells) not in (5, 7) or not all(cells[index] for index in needed):
            yield line


def unknown_words(table, dictionary):
    """Parts of the keys in a table of keys that the dictionary of the reader's fuzzer lacks."""
    keys = re.findall(r"^\| `([a-z][a-z0-9_.]*)` \|", table, re.MULTILINE)
    return sorted({word for key in keys for word in key.split(".")} - set(re.findall(r'^"(\w+)"', dictionary, re.MULTILINE)))


def test_itself():
    assert unknown_words("| `a.b_c` | x |\n| `a.d` | y |\n", '"a"\n"d"\n') == ["b_c"]
    text = "a\n<!-- begin: x -->\nold\n<!-- end -->\nb\n"
    assert renewed(text, lambda words: words + "!\n") == "a\n<!-- begin: x -->\nx!\n<!-- end -->\nb\n"
    assert renewed(text, lambda words: "old\n") == text
    head = "| key |\n|---|\n"
    assert not list(holes(head + "| L01 | a | b | c \\| d | |\n")) and not list(holes(head + "| k | t | d | r | | m | |\n"))
    assert list(holes(head + "| L01 | a | | c | d |\n")) and list(holes(head + "| k | t | d | r | u | | L01 |\n"))
    assert list(holes(head + "| k | t |\n"))


def main():
    test_itself()
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--root", type=pathlib.Path, required=True)
    options.add_argument("--lockstep", required=True)
    options.add_argument("--fix", action="store_true")
    options = options.parse_args()
    blocks, complaints = 0, []
    dictionary = (options.root / "tests/fuzz/reader.dict").read_text()

    def printed(words):
        answer = subprocess.run([options.lockstep, *words.split()], capture_output=True, text=True, timeout=300, check=True)
        return answer.stdout

    for name in DOCUMENTS:
        path = options.root / name
        text = path.read_text()
        new = renewed(text, printed)
        for block in BLOCK.finditer(new):
            blocks += 1
            complaints += [f"{name}: an empty cell: {row}" for row in holes(block["table"])]
            complaints += [f"tests/fuzz/reader.dict lacks {word}" for word in unknown_words(block["table"], dictionary)]
        if text != new and options.fix:
            path.write_text(new)
        elif text != new:
            complaints.append(f"{name} differs from what the program prints. {COMMAND} writes it anew")
    print("\n".join(complaints))
    print(f"generated docs: {blocks} tables, {len(complaints)} complaints")
    return 1 if complaints or not blocks else 0


if __name__ == "__main__":
    sys.exit(main())
