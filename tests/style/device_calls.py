"""Host code calls no function of the device.

nvcc compiles such a call in a template without a word, to exit(1), and a program that makes it ends in silence. So this
looks at the object files: for the host, the body of a function of the device only calls exit. A function that calls
exit and others is one of the host that has taken in such a body.
"""
import pathlib
import re
import shutil
import subprocess

import source

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
CALL = re.compile(r"R_X86_64_(?:PLT32|GOTPCRELX?|REX_GOTPCRELX)\s+(\S+?)(?:[-+]0x[0-9a-f]+)?$")


def callers_of_exit(disassembly):
    calls = {}
    for line in disassembly.splitlines():
        if begin := FUNCTION.match(line):
            called = calls.setdefault(begin[1], set())
        elif call := CALL.search(line):
            called.add(call[1])
    return [name for name, called in calls.items() if "exit" in called and called != {"exit"}]


def test_itself():
    stub = "0000 <_Z1fv>:\n  8: R_X86_64_PLT32\texit-0x4\n"
    host = "0010 <_Z1gv>:\n 12: R_X86_64_PLT32\tcudaLaunchKernelExC-0x4\n"
    assert not callers_of_exit(stub + host)
    assert callers_of_exit(stub + host + " 18: R_X86_64_PLT32\texit-0x4\n") == ["_Z1gv"]


def main():
    test_itself()
    parser = source.parser(__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the folder of the build")
    build = parser.parse_args().build
    objdump = shutil.which("objdump")
    files = sorted(build.rglob("*.cu.o"))
    complaints = [] if objdump and files else [f"{build}: no objdump, or no object files of CUDA"]
    for path in files if objdump else ():
        run = subprocess.run([objdump, "-drC", "--no-show-raw-insn", path], check=True, capture_output=True, text=True)
        complaints += (f"{path.name}: {name} calls a function of the device" for name in callers_of_exit(run.stdout))
    source.finish(complaints, len(files), "calls of device functions")


if __name__ == "__main__":
    main()
