"""Every header compiles alone: nobody needs to know what to include before it."""
import concurrent.futures
import os
import pathlib
import subprocess
import tempfile

import source


def compile_alone(command, header):
    """The compiler's complaints about a file that holds this include alone; "" if there are none."""
    done = subprocess.run(
        [*command, "-x", "c++", "-"], input=f'#include "{header}"\n', stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False)
    return done.stdout if done.returncode else ""


def main():
    parser = source.parser(__doc__)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--cuda", default="", help="folders of CUDA's headers; without them engine/cuda is left out")
    options = parser.parse_args()
    flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    flags += [f"-isystem{folder}" for folder in options.cuda.split(":") if folder]
    command = [options.compiler, *flags, f"-I{options.root}"]

    with tempfile.TemporaryDirectory() as folder:  # The check can fail.
        (pathlib.Path(folder) / "needs_more.h").write_text("#pragma once\ninline std::string text() { return {}; }\n")
        assert compile_alone([*command, f"-I{folder}"], "needs_more.h")

    headers = [str(path.relative_to(options.root)) for path in source.files(options.root, source.FOLDERS[:-1], (".h",))]
    if not options.cuda:
        headers = [name for name in headers if "/cuda/" not in name]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = pool.map(lambda name: compile_alone(command, name), headers)
    complaints = [f"{name} does not compile alone:\n{text}" for name, text in zip(headers, texts) if text]
    source.finish(complaints, len(headers), "headers alone")


if __name__ == "__main__":
    main()
