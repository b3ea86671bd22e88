"""Every test sees exactly the GPUs that ctest gave it. A small tree of tests runs with ctest, in a folder with a space in
its name, with a faked nvidia-smi of 0 to 8 GPUs, with and without a resource specification."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Names of tests, the GPUs that each takes, whether it runs alone.
TESTS = [(f"one.{i}", 1, False) for i in range(6)] + [("two", 2, True), ("four", 4, True)]


def script(path, text):
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


def make_tree(root, source):
    """The part of an installed tree that hands out GPUs, and tests that say what they see."""
    for name in ("ci/visible_gpus.sh", "ci/resource_spec.sh", "tests/on_gpu.sh", "tests/several_gpus.cmake"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, root / name)
    script(root / "says.sh", 'begin=$(date +%s%N); sleep 0.1; echo "${CUDA_VISIBLE_DEVICES-all} $begin $(date +%s%N)" >"$LOG/$1"\n')
    lines = [f'set(root "{root}")']
    for name, count, alone in TESTS:
        lines.append(f'add_test({name} bash "{root}/tests/on_gpu.sh" {count} bash "{root}/says.sh" {name})')
        properties = "SKIP_RETURN_CODE 77" + (" RUN_SERIAL TRUE" if alone else ' RESOURCE_GROUPS "1,gpus:1"')
        lines.append(f"set_tests_properties({name} PROPERTIES {properties})")
    several = ";".join(f"{name};{count}" for name, count, _ in TESTS if count > 1)
    lines += [f'set(tests_for_several_gpus "{several}")', 'include("${root}/tests/several_gpus.cmake")']
    (root / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")


def run(root, gpus, with_specification, visible=None):
    """What ctest said, and for each test that ran: the GPUs it saw, when it began and when it ended."""
    log = root / "log"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir()
    script(root / "bin/nvidia-smi", "".join(f'echo "GPU {i}: NVIDIA H200 (UUID: GPU-{i}a{i}b-77)"\n' for i in range(gpus)))
    env = {name: text for name, text in os.environ.items() if not name.startswith(("CTEST_", "CUDA_VISIBLE"))}
    env.update(LOG=str(log), PATH=f"{root / 'bin'}:{env['PATH']}")
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    command = ["ctest", "--test-dir", str(root), "-j", "6"]
    if with_specification:
        made = subprocess.run(["bash", str(root / "ci/resource_spec.sh")], env=env, capture_output=True, text=True)
        assert made.returncode == (0 if gpus else 3), made
        if gpus:
            (root / "gpus.json").write_text(made.stdout)
            command += ["--resource-spec-file", str(root / "gpus.json")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    saw = {}
    for path in log.iterdir():
        seen, begin, end = path.read_text().split()
        saw[path.name] = (seen, int(begin), int(end))
    return done.stdout, saw


def complaints(here, said, saw, with_specification):
    """`here`: the indices of the GPUs that are there."""
    if "100% tests passed" not in said:
        yield said
    for name, count, alone in TESTS:
        if (name in saw) != (len(here) >= count):
            yield f"{name} {'ran' if name in saw else 'did not run'} with {len(here)} GPUs"
            continue
        if name not in saw:
            if not re.search(rf"{re.escape(name)} \.+\*+Skipped", said):
                yield f"{name} was not reported as skipped"
            continue
        seen, begin, end = saw[name]
        if not with_specification:
            continue
        mine = seen.split(",")
        if len(set(mine)) != count or not set(mine) <= set(here):
            yield f"{name} saw {seen}, not {count} of {here}"
        for other, (theirs, first, last) in saw.items():
            if other != name and begin < last and first < end and (alone or set(theirs.split(",")) & set(mine)):
                yield f"{name} ({seen}) and {other} ({theirs}) ran at the same time"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    options = parser.parse_args()
    assert list(complaints(["0", "1"], "100% tests passed", {}, True)), "the check must be able to fail"
    found = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "a tree"
        (root / "bin").mkdir(parents=True)
        make_tree(root, options.root)
        for gpus in (0, 1, 2, 3, 4, 8):
            for with_specification in (True, False):
                said, saw = run(root, gpus, with_specification)
                here = [str(i) for i in range(gpus)]
                found += [f"{gpus} GPUs: {text}" for text in complaints(here, said, saw, with_specification)]
        for visible, here in (("2,0", ["2", "0"]), ("GPU-3a,1", ["3", "1"]), ("1,9,2", ["1"]), ("", [])):
            said, saw = run(root, 4, bool(here), visible)
            found += [f"CUDA_VISIBLE_DEVICES={visible}: {text}" for text in complaints(here, said, saw, bool(here))]
        # A test that asked for nothing sees every GPU, with a specification too.
        text = (root / "CTestTestfile.cmake").read_text()
        (root / "CTestTestfile.cmake").write_text(text[: text.index("set(tests_for_several_gpus")])
        _, saw = run(root, 2, True)
        if saw.get("two", ("",))[0] != "all":
            found.append(f"a test without resources saw {saw.get('two')}")
    print("\n".join([*found, f"on_gpu: {len(found)} complaints"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
