"""Holds the pipelines of ci/ to what is there: YAML, shell syntax, scripts, labels; runs the cheap steps with a tiny budget."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
# Labels that a test may carry (contract of the command line).
LABELS = {"host", "gpu", "multi_gpu", "slow", "canary"}
JOBS = {"cpu", "gpu", "nightly"}


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
    seen = set()
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
        # A canary that must fail runs in every lane: those of tests that are not slow are among them.
        if "ctest" in shell and re.search(r"-L '[^']*slow", shell) and "canary" not in shell:
            yield f"{name}: {job}: runs no canary"
    if not JOBS <= seen:
        yield f"{name}: jobs missing: {sorted(JOBS - seen)}"


def artefact_complaints(name, text):
    for needed in ("out/", "ctest.xml", "resource_spec.sh", "SHARD"):
        if needed not in text:
            yield f"{name}: nothing says {needed}"


def scripts_that_do_not_parse(root):
    for script in sorted((root / "ci").glob("*.sh")):
        checked = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
        if checked.returncode:
            yield f"{script}: {checked.stderr.strip()}"


def campaign_complaints(root, lockstep, steps):
    """Runs each campaign step as it stands, but on the simulator, for a second."""
    texts = {re.sub(r"\b(BUDGET|DEVICE|OUT)=\S+ ?", "", shell).split("||")[0].strip() for _, shell in steps if "ci/campaign.sh" in shell}
    for text in sorted(texts):
        with tempfile.TemporaryDirectory() as out:
            env = dict(os.environ, BUDGET="1", DEVICE="sim", SEED="1", SHARD="1/4", OUT=out, LOCKSTEP=lockstep)
            ran = subprocess.run(["bash", "-c", text], cwd=root, env=env, capture_output=True, text=True, timeout=200)
            if ran.returncode not in (0, 5):
                yield f"`{text}` left with {ran.returncode}: {ran.stderr[-800:]}"
            made = {path.name for path in pathlib.Path(out).iterdir()}
            missing = {"log-1.ndjson", "campaign-1.json", "campaign-1.xml", "campaign-1.html"} - made
            if missing:
                yield f"`{text}` did not write {sorted(missing)}"


def test_itself(root):
    """The checks must be able to fail."""
    bad = [("cpu", "if true; then"), ("gpu", "bash ci/none.sh"), ("nightly", "ctest -L '^(gpus|slow)$'")]
    assert len(list(complaints(root, "bad", bad))) == 4
    assert list(complaints(root, "bad", [("cpu", "true")])) == ["bad: jobs missing: ['gpu', 'nightly']"]
    assert len(list(artefact_complaints("bad", ""))) == 4


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
    root = options.root
    test_itself(root)
    found = list(scripts_that_do_not_parse(root))
    every_step = []
    for name, steps_of in (("github-actions.yml", github_steps), ("gitlab-ci.yml", gitlab_steps)):
        text = (root / "ci" / name).read_text()
        steps = list(steps_of(yaml.safe_load(text)))
        found += complaints(root, name, steps)
        found += artefact_complaints(name, text)
        every_step += steps
    found += campaign_complaints(root, options.lockstep, every_step)
    for complaint in found:
        print(complaint)
    print(f"pipelines: {len(found)} complaints in {len(every_step)} steps")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
