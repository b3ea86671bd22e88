"""Measures of the tree that may only fall: prints them as a table and fails where one is above its limit.

--base REV measures that commit too, by this same script. When a measure falls, its limit in LIMITS follows it down."""
import argparse
import collections
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import source

CODE = ("kernels", "scenarios", "engine", "oracle", "harness")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
OPENING = re.compile(r"//+\s*(Of|Those|What\b[^.]*\bthat)\b")
FAULT = re.compile(r"\bfault\(\"")
INDEX_CAST = "static_cast<std::size_t>"
# Functions that are tables: one entry after the other, nothing to hold in mind.
TABLES = {"settings", "engine_faults", "kernel_faults", "examples", "coverage"}

# Measure: (limit, goal). A limit is what the tree has now and may only be lowered; a goal is what it should come to.
LIMITS = {
    "files in a folder, most": (40, 40),
    "files in a folder, 90th percentile": (23, 23),
    "circles between folders": (0, 0),
    "units that include one op's header, most": (30, 30),
    "comments that open without a subject": (20, 20),
    "lines with fault( in engine/": (0, 0),
    "lines with fault( in kernels/": (0, 0),
    "static_cast<std::size_t>": (100, 100),
    "lines of a function, most": (100, 100),
    "lines over 100 columns": (25, 25),
}


class Tree:
    """The files of one tree, read once."""

    def __init__(self, root):
        self.root = root
        self.files = sorted(p for top in source.FOLDERS for p in (root / top).rglob("*")
                            if p.is_file() and p.suffix != ".pyc")
        self.texts = {str(p.relative_to(root)): p.read_text() for p in self.files if p.suffix in source.SUFFIXES}

    def of(self, *tops):
        return {name: text for name, text in self.texts.items() if name.split("/")[0] in tops}


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def files_per_folder(tree):
    """{folder: files}, without scenarios: a room of those is searched by name, and everybody adds to it."""
    return collections.Counter(path.parent for path in tree.files if path.suffix not in (".yaml", ".yml"))


def circles(edges):
    """The groups of at least two nodes that reach each other."""

    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for target in edges.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    reached = {node: reach(node) for node in edges}
    groups = {frozenset(other for other in reached if other in reached[node] and node in reached[other])
              for node in reached if node in reached[node]}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def folder_edges(texts):
    """Which folder includes which, within kernels, scenarios, engine, oracle and harness."""
    edges = collections.defaultdict(set)
    for name, text in texts.items():
        folder = name.rsplit("/", 1)[0]
        for target in INCLUDE.findall(text):
            other = target.rsplit("/", 1)[0]
            if other != folder and target in texts:
                edges[folder].add(other)
    return edges


def op_header_fan_in(tree):
    """How many .cpp files include a header of an op, at most: op headers are those in the list of all ops."""
    lists = [name for name in tree.texts if re.fullmatch(r"kernels/(submission/)?ops\.h", name)]
    headers = {target for name in lists for target in INCLUDE.findall(tree.texts[name])
               if not re.search(r"/(submission|operand|contract|queue)\.h$", target)}
    includers = collections.defaultdict(set)
    for name, text in tree.texts.items():
        for target in INCLUDE.findall(text):
            includers[target].add(name)
    most = (0, "")
    for header in sorted(headers):
        seen, todo = set(), [header]
        while todo:
            for name in includers[todo.pop()]:
                if name not in seen:
                    seen.add(name)
                    todo.append(name)
        most = max(most, (sum(name.endswith(".cpp") for name in seen), header))
    return most


def openings(texts):
    """Comments whose first words have no subject; the lines of one comment count once."""
    count = 0
    for text in texts.values():
        before = False
        for line in text.splitlines():
            at = line.find("//")
            alone = line.strip().startswith("//")
            if at >= 0 and not (before and alone) and OPENING.match(line, at):
                count += 1
            before = alone
    return count


def longest_function(tree):
    """(lines, name) of the longest function that is no table, or None without a ctags that knows where one ends."""
    ctags = shutil.which("ctags") or shutil.which("universal-ctags")
    if not ctags:
        return None
    names = [name for name in tree.texts if name.split("/")[0] in CODE]
    done = subprocess.run(
        [ctags, "--languages=C++", "--langmap=C++:.cpp.h.cu.cuh", "--kinds-C++=f", "--fields=+ne", "-f", "-", *names],
        cwd=tree.root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    most = None
    for line in done.stdout.splitlines():
        words = line.split("\t")
        begin = re.search(r"\tline:(\d+)", line)
        end = re.search(r"\tend:(\d+)", line)
        if begin and end and words[0] not in TABLES:
            found = (int(end[1]) - int(begin[1]) + 1, f"{words[1]}: {words[0]}")
            most = max(most or found, found)
    return most


def measures(root):
    """{measure: (value, where)}; a value is None where this machine cannot measure it."""
    tree = Tree(root)
    if not tree.texts:
        sys.exit("ratchets: no files were found")
    code = tree.of(*CODE)
    folders = files_per_folder(tree)
    found = circles(folder_edges(code))
    fan_in = op_header_fan_in(tree)
    longest = longest_function(tree) or (None, "no ctags")
    faults = {top: sum(bool(FAULT.search(line)) for text in tree.of(top).values()
                       for line in source.code(text, literals=True).splitlines()) for top in ("engine", "kernels")}
    return {
        "files in a folder, most": (max(folders.values()), ""),
        "files in a folder, 90th percentile": (
            percentile(folders.values(), 0.9), f"{len(folders)} folders; the largest: "
            + ", ".join(f"{folder} {count}" for folder, count in folders.most_common(4))),
        "circles between folders": (len(found), "; ".join(" ".join(group) for group in found)),
        "units that include one op's header, most": fan_in,
        "comments that open without a subject": (openings(tree.texts), ""),
        "lines with fault( in engine/": (faults["engine"], ""),
        "lines with fault( in kernels/": (faults["kernels"], ""),
        "static_cast<std::size_t>": (sum(text.count(INDEX_CAST) for text in code.values()), ""),
        "lines of a function, most": longest,
        "lines over 100 columns": (sum(len(line) > 100 for text in tree.texts.values() for line in text.splitlines()), ""),
    }


def complaints_of(found, limits):
    for name, (limit, _) in limits.items():
        value, where = found[name]
        if value is not None and value > limit:
            yield f"{name}: {value}, and the limit is {limit} {where}".rstrip()


def print_table(found, before):
    head = ["measure"] + (["before"] if before else []) + ["now", "limit", "goal", ""]
    rows = [head]
    for name, (limit, goal) in LIMITS.items():
        value, where = found[name]
        rows.append([name] + ([before[name][0]] if before else []) + [value, limit, goal, where[:100]])
    rows = [[str("-" if cell is None else cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
                        + row[-1:]).rstrip())


def test_itself():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]] and not circles({"a": {"b"}, "b": {"c"}})
    texts = {"engine/a/x.h": '#include "engine/b/y.h"\n', "engine/b/y.h": '#include "engine/a/x.h"\n'}
    assert circles(folder_edges(texts)) == [["engine/a", "engine/b"]]
    assert openings({"a": "// Of a thing.\n// Of more.\nint x;  // Those too.\n// What is here that counts.\n"}) == 3
    assert openings({"a": "int y;\n// What is here that counts.\n// The rest.\n// Often.\n"}) == 1
    assert percentile(range(1, 11), 0.9) == 10
    assert FAULT.search('if (fault("a")) x;') and not FAULT.search('faulty("a", 1, 2)')
    name = next(iter(LIMITS))
    found = {key: (limit, "") for key, (limit, _) in LIMITS.items()}
    assert not list(complaints_of(found, LIMITS))
    found[name] = (LIMITS[name][0] + 1, "")
    assert list(complaints_of(found, LIMITS))


def measures_of_commit(root, commit):
    archive = subprocess.run(["git", "-C", root, "archive", commit], stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        tarfile.open(fileobj=io.BytesIO(archive)).extractall(folder)
        return measures(pathlib.Path(folder))


def main():
    test_itself()
    parser = source.parser(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--base", help="a commit to measure too")
    options = parser.parse_args()
    found = measures(options.root)
    print_table(found, measures_of_commit(options.root, options.base) if options.base else None)
    source.finish(list(complaints_of(found, LIMITS)), len(LIMITS), "ratchets")


if __name__ == "__main__":
    main()
