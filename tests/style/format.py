"""clang-format agrees with every file. One version of clang-format, since others break lines in other places."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import source

PART = 50  # Files for one start of clang-format, which takes longer than most files do.


def badly_formatted(command, files):
    """(file, its first line that clang-format would change) of each such file."""
    done = subprocess.run([*command, "--dry-run", *files], text=True, capture_output=True, check=True)
    first = {}
    for path, line in re.findall(r"^(.*?):(\d+):\d+: (?:warning|error)", done.stderr, re.MULTILINE):
        first.setdefault(pathlib.Path(path), int(line))
    return list(first.items())


def test_itself(command):
    example = subprocess.run([*command, "--assume-filename=x.cpp"], input="int  f( ){return 1 ;}\n", text=True, capture_output=True, check=True)
    assert example.stdout == "int f() { return 1; }\n", example
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / name for name in ("a.cpp", "b.cpp", "c.cpp")]
        for file, text in zip(files, ("int a;\nint  b( );\nint  c;\n", "int a;\n", "int  a;\n")):
            file.write_text(text)
        assert badly_formatted(command, files) == [(files[0], 2), (files[2], 1)]


def main():
    parser = source.parser(__doc__)
    parser.add_argument("--clang-format", default="")
    parser.add_argument("--fix", action="store_true")
    options = parser.parse_args()
    if not options.clang_format or options.clang_format.endswith("-NOTFOUND"):
        print("skipped: clang-format-14 is not installed")
        sys.exit(77)
    command = [options.clang_format, "--style=file"]
    test_itself([options.clang_format, "--style=Google"])

    files = source.files(options.root)
    if options.fix:
        subprocess.run([*command, "-i", *files], check=True)
        return

    parts = [files[i:i + PART] for i in range(0, len(files), PART)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [one for part in pool.map(lambda part: badly_formatted(command, part), parts) for one in part]
    complaints = [f"{path.relative_to(options.root)}:{line}: not as clang-format has it" for path, line in found]
    if complaints:
        print("To mend all of these: cmake --build BUILD --target format, or "
              f"python3 {sys.argv[0]} --root {options.root} --clang-format={options.clang_format} --fix")
    source.finish(complaints, len(files), "format")


if __name__ == "__main__":
    main()
