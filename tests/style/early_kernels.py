"""Kernels are launched while the last one ends, and begin by waiting for it: all but those of some files, which order themselves."""
import re

import source

LATE = ("backward_bf16", "spin")  # Files whose kernels are launched when the last one has ended, or order themselves.
KERNEL = re.compile(r"__global__[^;{]*?\b(\w+)\((?:[^(){};]|\([^()]*\))*\)\s*\{\s*([^;]*;)")
EARLY = re.compile(r"\b(kPdl|launch_elements|launch_vec8)\b")


def complaints_of(name, text):
    code = source.code(text)
    line_of = lambda match: code.count("\n", 0, match.start()) + 1
    if name.rsplit("/", 1)[1].startswith(LATE):
        for match in EARLY.finditer(code):
            yield f"{name}:{line_of(match)}: {match[0]}: kernels of this file do not wait for the last one"
        return
    found = list(KERNEL.finditer(code))
    if len(found) != code.count("__global__"):
        yield f"{name}: {code.count('__global__')} kernels, of which {len(found)} were understood"
    for match in found:
        if match[2] != "pdl_begin();":
            yield f"{name}:{line_of(match)}: {match[1]} does not begin with pdl_begin();"


def test_itself():
    head = "template <class T>\n__global__ void __launch_bounds__(kThreads, 2) f(Op<T> op, bool wide) {\n"
    assert not list(complaints_of("kernels/cuda/a.cu", head + "  pdl_begin();\n  g();\n}\n"))
    assert list(complaints_of("kernels/cuda/a.cu", head + "  g();\n  pdl_begin();\n}\n"))
    assert not list(complaints_of("kernels/cuda/common/spin.cu", head + "  g();\n}\n"))
    assert list(complaints_of("kernels/cuda/common/spin.cu", "launch(queue, grid, block, kPdl, f, op);\n"))


def main():
    test_itself()
    root = source.parser(__doc__).parse_args().root
    files = source.files(root, ("kernels",), (".cu", ".cuh"))
    complaints = []
    for path in files:
        complaints += complaints_of(str(path.relative_to(root)), path.read_text())
    source.finish(complaints, len(files), "early kernels")


if __name__ == "__main__":
    main()
