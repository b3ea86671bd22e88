"""ctest labels a scenario multi_gpu by its folder, scenarios/library/nccl. The reader of scenarios must agree: there and
nowhere else are the scenarios whose ranks each take a GPU of their own; ctest gives four GPUs to those with `-four-` in
their name and two to the others."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path("scenarios/library/nccl")


def ranks_over_nccl(lockstep, path):
    """How many GPUs the scenario asks for, as `lockstep describe` reads it; 0 where it cannot be read or asks for none."""
    # Every key on a line of its own, in a hundredth of the time that a whole description takes.
    described = subprocess.run([lockstep, "describe", "--defaults", path], capture_output=True, text=True, check=False)
    if described.returncode:
        return 0
    block = re.search(r"^parallel:\n((?:  .*\n)+)", described.stdout, re.MULTILINE)[1]
    parallel = dict(line.split(": ", 1) for line in block.replace("  ", "").splitlines())
    return int(parallel["data"]) * int(parallel["pipeline"]) if parallel["transport"] == "nccl" else 0


def complaint(name, ranks):
    """What is wrong with a file of this name (a path from the root) and this many ranks over NCCL, or None."""
    in_folder = name.parent == FOLDER
    given = 4 if "-four-" in name.name else 2
    if in_folder and ranks < 2:
        return f"{name}: asks for {ranks} GPUs; {FOLDER} is for scenarios that take several"
    if in_folder and ranks != given:
        return f"{name}: asks for {ranks} GPUs, and ctest gives a test of this name {given}"
    if not in_folder and ranks > 1:
        return f"{name}: asks for {ranks} GPUs; move it to {FOLDER}, where ctest gives a test several"
    return None


def test_itself(lockstep, folder):
    asked = folder / "asked.yaml"
    words = 'schema: 1\nname: asked\nmodel: {pattern: "MMM"}\n%s\n'
    for text, want in {
        "parallel: {data: 2, transport: nccl}": 2,
        "parallel: {data: 2, pipeline: 3, transport: nccl}": 6,
        "parallel: {pipeline: 2, transport: nccl}": 2,
        "parallel:\n  # data: 2\n  transport: \"nccl\"\n  data: 8\ntraining: {steps: 2}": 8,
        '"parallel": {"data": 16, "transport": "nccl"}': 16,
        "parallel: {data: 2, transport: shm}": 0,
        "# parallel: {data: 2, transport: nccl}": 0,
    }.items():
        asked.write_text(words % text)
        got = ranks_over_nccl(lockstep, asked)
        assert got == want, (text, got, want)
    assert complaint(FOLDER / "a.yaml", 0) and not complaint(FOLDER / "a.yaml", 2)
    assert complaint(FOLDER / "a.yaml", 4) and not complaint(FOLDER / "a-four-b.yaml", 4)
    assert complaint(pathlib.Path("scenarios/a.yaml"), 2) and not complaint(pathlib.Path("scenarios/a.yaml"), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--lockstep", required=True)
    options = parser.parse_args()
    files = sorted(path for end in ("yaml", "yml") for path in (options.root / "scenarios").rglob(f"*.{end}"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        test_itself(options.lockstep, folder)
        found = [(path.relative_to(options.root), ranks_over_nccl(options.lockstep, path)) for path in files]
    complaints = [text for text in (complaint(name, ranks) for name, ranks in found) if text]
    several = sum(ranks > 1 for _, ranks in found)
    print("\n".join(complaints), f"{len(files)} scenarios, {several} of them for several GPUs", sep="\n")
    sys.exit(1 if complaints or not several else 0)


if __name__ == "__main__":
    main()
