"""Every header compiles alone: nobody needs to know what to include before it.

Most of that time would go into parsing the same headers of the standard library again. They are parsed once, but what is
parsed ahead of a header is only what that header includes itself, through ours or not: it sees nothing that is not its own.
"""
import concurrent.futures
import functools
import os
import pathlib
import re
import subprocess
import tempfile

import source

# What is parsed ahead, the most first.
AHEAD = (
    frozenset("boost/pfr.hpp functional map memory optional stdexcept string vector".split()),
    frozenset("cstdint map optional string vector".split()),
    frozenset("string vector".split()),
)
LINE = re.compile(r'\s*#\s*(?:(if|endif)|include\s*(["<])([^">]+)[">])')


def included(read, name):
    """The outside headers that a header includes on every condition, itself or through ours. `read` gives a text, or
    None."""
    seen, outside = set(), set()

    def look(name):
        seen.add(name)
        depth = 0  # Of #if: what is under one counts as not included.
        for line in source.code(read(name), literals=True).splitlines():
            if not (match := LINE.match(line)):
                continue
            if match[1]:
                depth += 1 if match[1] == "if" else -1
            elif depth == 0 and match[2] == "<":
                outside.add(match[3])
            elif depth == 0 and match[3] not in seen and read(match[3]) is not None:
                look(match[3])

    look(name)
    return outside


def ahead_of(outside):
    return next((headers for headers in AHEAD if headers <= outside), None)


def compile_alone(command, ahead, header):
    """The compiler's complaints about a file that holds this include alone; "" if there are none. `ahead`: the file to parse
    first, or None."""
    first = ["-include", str(ahead)] if ahead else []
    done = subprocess.run(
        [*command, "-fsyntax-only", *first, "-x", "c++", "-"], input=f'#include "{header}"\n', stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout if done.returncode else ""


def parse_ahead(command, folder, headers):
    """The file to -include for these headers."""
    path = pathlib.Path(folder) / f"ahead_{len(headers)}.h"
    path.write_text("".join(f"#include <{header}>\n" for header in sorted(headers)))
    subprocess.run([*command, "-x", "c++-header", str(path), "-o", f"{path}.gch"], check=True)
    return path


def test_itself(command, folder, ahead):
    files = {"ours.h": "#include <string>\n", "half.h": "#include <string>\n#if 1\n#include <vector>\n#endif\n",
             "both.h": '#pragma once\n#include "ours.h"\n#include <vector>\n#include "both.h"\n'}
    assert included(files.get, "both.h") == {"string", "vector"}
    assert included(files.get, "half.h") == {"string"} and ahead_of({"string"}) is None
    assert ahead_of({"string", "vector", "set"}) == AHEAD[-1]
    (pathlib.Path(folder) / "needs_more.h").write_text("#pragma once\ninline std::list<int> numbers() { return {}; }\n")
    for path in (None, *ahead.values()):
        assert compile_alone([*command, f"-I{folder}"], path, "needs_more.h")


def main():
    parser = source.parser(__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--cuda", default="", help="folders of CUDA's headers; without them engine/cuda is left out")
    options = parser.parse_args()
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-Winvalid-pch", "-Wno-unused-parameter"]
    flags += [f"-isystem{folder}" for folder in options.cuda.split(":") if folder]
    command = [options.compiler, *flags, f"-I{options.root}"]

    headers = [str(path.relative_to(options.root)) for path in source.files(options.root, source.FOLDERS[:-1], (".h",))]
    if not options.cuda:
        headers = [name for name in headers if "/cuda/" not in name]

    @functools.lru_cache(None)
    def read(name):
        path = options.root / name
        return path.read_text() if path.is_file() else None

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        ahead = dict(zip(AHEAD, pool.map(functools.partial(parse_ahead, command, folder), AHEAD)))
        test_itself(command, folder, ahead)
        texts = pool.map(lambda name: compile_alone(command, ahead.get(ahead_of(included(read, name))), name), headers)
        complaints = [f"{name} does not compile alone:\n{text}" for name, text in zip(headers, texts) if text]
    source.finish(complaints, len(headers), "headers alone")


if __name__ == "__main__":
    main()
