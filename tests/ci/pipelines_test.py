"""Holds the pipelines of ci/ to what is there: YAML, shell syntax, scripts, labels; runs each job with
stubs for its builds and a tiny budget for its campaign."""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import run_job

SKIPPED = 77
# Labels that a test may carry (contract of the command line).
LABELS = {"host", "gpu", "multi_gpu", "net", "slow", "canary"}
JOBS = {"cpu", "gpu", "nightly-gpu", "nightly-outside", "nightly-sanitizers", "nightly"}


def github_steps(pipeline):
    """(job, shell text) of every step; expressions of GitHub's become words."""
    for name, job in pipeline["jobs"].items():
        for step in job["steps"]:
            if "run" in step:
                yield name, re.sub(r"\$\{\{.*?\}\}", "0", step["run"])


def gitlab_steps(pipeline):
    for name, job in pipeline.items():
        if isinstance(job, dict) and "script" in job:
            for step in job["script"]:
                yield name, step


def complaints(root, name, steps):
    seen, campaigned = set(), set()
    for job, shell in steps:
        seen.add(job)
        checked = subprocess.run(["bash", "-n", "-c", shell], capture_output=True, text=True)
        if checked.returncode:
            yield f"{name}: {job}: {checked.stderr.strip()}: {shell}"
        for script in re.findall(r"\bci/[\w.]+\.sh\b", shell):
            if not (root / script).is_file():
                yield f"{name}: {job}: there is no {script}"
        for label in re.findall(r"\w+", " ".join(re.findall(r"-LE? '\^([\w(|)]+)\$'", shell))):
            if label not in LABELS:
                yield f"{name}: {job}: no test has the label {label}"
        # The signal of a cancelled job reaches the shell of the step alone, unless the campaign takes its place.
        if re.search(r"ci/campaign\.sh[^|&;]*$", shell) and not shell.strip().startswith("exec env "):
            yield f"{name}: {job}: a signal would not reach lockstep: {shell}"
        if "LOCKSTEP_FUZZERS=1 bash ci/deps.sh" in shell or ("ci/deps.sh" in shell and job in campaigned):
            yield f"{name}: {job}: asks for packages after its campaign"
        if "ci/campaign.sh" in shell:
            campaigned.add(job)
        # A canary that must fail runs in every lane: those of tests that are not slow are among them.
        if "ctest" in shell and re.search(r"-L '[^']*slow", shell) and "canary" not in shell:
            yield f"{name}: {job}: runs no canary"
    if not JOBS <= seen:
        yield f"{name}: jobs missing: {sorted(JOBS - seen)}"


def artefact_complaints(name, text):
    for needed in ("out/", "ctest.xml", "resource_spec.sh", "SHARD"):
        if needed not in text:
            yield f"{name}: nothing says {needed}"
    # Whoever has more runners changes one place: a second number would leave out shards that nobody has.
    for number in re.findall(r"TOTAL_SHARDS=\d+|SHARD: .*/\d+", text):
        yield f"{name}: the number of shards stands in two places: {number}"


def scripts_that_do_not_parse(root):
    for script in sorted((root / "ci").glob("*.sh")):
        checked = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
        if checked.returncode:
            yield f"{script}: {checked.stderr.strip()}"


def job_complaints(root, lockstep):
    """Runs each job's steps one behind the other in one folder, as a user who is not root where this is root."""
    for pipeline in ("github", "gitlab"):
        for job in sorted(run_job.jobs_of(root, pipeline)):
            rows, made = run_job.run_job(root, pipeline, job, "nobody", lockstep)
            step, status, _, output = rows[-1]
            if status:
                yield f"{pipeline} {job}: `{step}` left with {status}: {output[-800:]}"
            of_job = {"nightly-gpu": {"out/gpu/summary.txt"},
                      "nightly-outside": {f"out/outside/{name}" for name in (
                          "log-0.ndjson", "campaign-0.json", "campaign-0.xml", "campaign-0.html")},
                      "nightly-sanitizers": {f"out/sanitizers/address/{name}" for name in (
                          "ctest.xml", "verify.xml", "fuzz.ndjson", "fuzz.xml", "summary.txt")}}
            wanted = of_job[job] if job in of_job else {"out/ctest.xml"} | {
                f"out/campaign/{name}" for name in ("log-{0}.ndjson", "campaign-{0}.json", "campaign-{0}.xml", "campaign-{0}.html")}
            index = {"github": "1", "gitlab": "0"}[pipeline] if job == "nightly" else "0"
            missing = {name.format(index) for name in wanted} - set(made)
            if missing and not status:
                yield f"{pipeline} {job}: did not write {sorted(missing)}"


def test_job_runner(root, lockstep):
    """A folder that root made is closed to the steps behind it, and a campaign that is repeated continues or begins anew."""
    campaign = f'BUDGET="{60 * run_job.PATIENCE}" DEVICE=sim bash ci/campaign.sh'  # In quotes, the budget stays.
    if os.geteuid() == 0:
        rows, _ = run_job.run_job(root, "github", "cpu", "nobody", lockstep, [
            "sudo bash ci/build.sh", 'sudo -E ctest --output-junit "$PWD/out/ctest.xml"', campaign])
        assert rows[-1][0].endswith("ci/campaign.sh") and rows[-1][1] and "Permission denied" in rows[-1][3], rows
    rows, made = run_job.run_job(root, "github", "cpu", "nobody", lockstep, [
        "bash ci/build.sh", *(f"{seed} {campaign} --count {count}" for seed, count in
                              (("SEED=5", 4), ("SEED=5", 6), ("SEED=6", 4), ("", 4)))])
    assert [row[1] for row in rows] == [0] * 5, rows[-1]
    cases = [int(re.search(r"seed \d+: (\d+) cases", row[3])[1]) for row in rows[1:]]
    assert cases[1] == cases[0] + 2 and cases[2] == cases[3] == cases[0], cases
    earlier = [name for name in made if name.startswith("out/campaign/earlier/")]
    assert sum(name.endswith("-seed-5/log-0.ndjson") for name in earlier) == 1, made
    assert sum(name.endswith("-seed-6/campaign-0.json") for name in earlier) == 1, made


def test_signal(root, lockstep):
    """A runner signals the shell of the step alone; the campaign writes its reports all the same."""
    campaign = run_job.jobs_of(root, "github")["cpu"][1][-1]
    with tempfile.TemporaryDirectory() as out:
        env = {**os.environ, "OUT": out, "LOCKSTEP": lockstep}
        step = subprocess.Popen(["bash", "-e", "-o", "pipefail", "-c", "true\n" + campaign], cwd=root, env=env,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = pathlib.Path(out) / "log-0.ndjson"
        until = time.monotonic() + 300  # Under a sanitizer a campaign begins slowly.
        while (not log.is_file() or log.read_bytes().count(b"\n") < 2) and time.monotonic() < until:
            time.sleep(0.05)
        step.send_signal(signal.SIGTERM)
        status = step.wait(300)
        assert status == 5, status
        assert '"interrupted":true' in (pathlib.Path(out) / "campaign-0.json").read_text()


def test_campaign_script(root, lockstep):
    """A folder that cannot be made is a failure of the environment, and an edited regression replaces its old text."""
    with tempfile.TemporaryDirectory() as temporary:
        there = pathlib.Path(temporary)
        run_job.copy_tree(root, there / "tree", run_job.READ)
        (there / "file").write_text("")
        regressions = there / "tree/scenarios/regressions"
        regressions.mkdir(exist_ok=True)
        for text in ("old", "new"):
            (regressions / "edited.yaml").write_text(text)
            run = lambda out: subprocess.run(["bash", str(there / "tree/ci/campaign.sh")], env={
                **os.environ, "OUT": out, "LOCKSTEP": "/bin/true", "DEVICE": "sim"}, capture_output=True, check=False).returncode
            assert run(str(there / "out")) == 0
            assert (there / "out/corpus/edited.yaml").read_text() == text
        assert run(str(there / "file/out")) == 3


def test_copied_tree():
    """Without git all is copied but builds, which are folders: ci/build.sh is none."""
    with tempfile.TemporaryDirectory() as temporary:
        root, copy = pathlib.Path(temporary) / "root", pathlib.Path(temporary) / "copy"
        for name in ("ci/build.sh", "build/bin/lockstep", "build-host-asan/a.o", "notes.txt"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("a")
        (root / "more").mkdir()
        (root / "more/a.txt").write_text("a")
        for only, kept in ((None, {"ci/build.sh", "notes.txt", "more/a.txt"}), ({"ci"}, {"ci/build.sh", "notes.txt"})):
            run_job.copy_tree(root, copy / str(only), only)
            assert {str(path.relative_to(copy / str(only))) for path in (copy / str(only)).rglob("*") if path.is_file()} == kept


def test_little_jobs(root, lockstep):
    """A job that is real may be shortened, and given an environment."""
    rows, _ = run_job.run_job(root, "github", "cpu", "nobody", "", ["BUDGET=9000 bash -c 'echo $BUDGET'", "CASES=77 bash -c 'echo $CASES $WORD'"],
                              True, {"WORD": "given"})
    assert [row[3] for row in rows] == ["1\n", "3 given\n"], rows
    rows, _ = run_job.run_job(root, "github", "cpu", "nobody", "", ["BUDGET=9000 bash -c 'echo $BUDGET'; id -u"])
    user = "65534" if os.geteuid() == 0 else str(os.geteuid())
    assert rows[0][3] == f"9000\n{user}\n", rows


def test_itself(root):
    """The checks must be able to fail."""
    bad = [("cpu", "if true; then"), ("gpu", "bash ci/none.sh"), ("nightly", "ctest -L '^(gpus|slow)$'")]
    assert len(list(complaints(root, "bad", bad))) == 5
    late = [("nightly", "BUDGET=1 bash ci/campaign.sh"), ("nightly", "LOCKSTEP_FUZZERS=1 bash ci/deps.sh")]
    assert len(list(complaints(root, "bad", late))) == 3
    assert list(complaints(root, "bad", [("cpu", "true")])) == [
        "bad: jobs missing: ['gpu', 'nightly', 'nightly-gpu', 'nightly-outside', 'nightly-sanitizers']"]
    assert len(list(artefact_complaints("bad", ""))) == 4
    twice = "out/ ctest.xml resource_spec.sh GTEST_TOTAL_SHARDS=4\nSHARD: \"${{ matrix.shard }}/4\""
    assert len(list(artefact_complaints("bad", twice))) == 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--lockstep", required=True)
    options = parser.parse_args()
    try:
        import yaml
    except ImportError:
        print("pipelines: skipped: no PyYAML (python3-yaml)")
        return SKIPPED
    root = options.root.resolve()
    test_itself(root)
    test_copied_tree()
    found = list(scripts_that_do_not_parse(root))
    every_step = []
    for name, steps_of in (("github-actions.yml", github_steps), ("gitlab-ci.yml", gitlab_steps)):
        text = (root / "ci" / name).read_text()
        steps = list(steps_of(yaml.safe_load(text)))
        found += complaints(root, name, steps)
        found += artefact_complaints(name, text)
        every_step += steps
    lockstep = str(pathlib.Path(options.lockstep).resolve())
    test_job_runner(root, lockstep)
    test_little_jobs(root, lockstep)
    test_campaign_script(root, lockstep)
    test_signal(root, lockstep)
    found += job_complaints(root, lockstep)
    for complaint in found:
        print(complaint)
    print(f"pipelines: {len(found)} complaints in {len(every_step)} steps")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
