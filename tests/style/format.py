"""clang-format agrees with every file. One version of clang-format, since others break lines in other places."""
import concurrent.futures
import os
import re
import subprocess
import sys

import source


def main():
    parser = source.parser(__doc__)
    parser.add_argument("--clang-format", default="")
    parser.add_argument("--fix", action="store_true")
    options = parser.parse_args()
    if not options.clang_format or options.clang_format.endswith("-NOTFOUND"):
        print("skipped: clang-format-14 is not installed")
        sys.exit(77)
    command = [options.clang_format, "--style=file"]
    example = subprocess.run([*command, "--assume-filename=x.cpp"], input="int  f( ){return 1 ;}\n", text=True, capture_output=True, check=True)
    assert example.stdout == "int f() { return 1; }\n", example

    files = source.files(options.root)
    if options.fix:
        subprocess.run([*command, "-i", *files], check=True)
        return

    def complaint(path):
        done = subprocess.run([*command, "--dry-run", path], text=True, capture_output=True, check=True)
        first = re.search(r":(\d+):\d+: (warning|error)", done.stderr)
        return f"{path.relative_to(options.root)}:{first[1]}: not as clang-format has it" if first else ""

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [text for text in pool.map(complaint, files) if text]
    if complaints:
        print("To mend all of these: cmake --build BUILD --target format, or "
              f"python3 {sys.argv[0]} --root {options.root} --clang-format={options.clang_format} --fix")
    source.finish(complaints, len(files), "format")


if __name__ == "__main__":
    main()
