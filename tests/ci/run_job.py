"""Runs the steps of a pipeline's job one behind the other in one folder, a copy of the tree, as a runner does it:
GitHub's each in a shell of its own, GitLab's in one. Started by root, the steps run as `--user`, but those that begin
with `sudo`. With --stubs the builds are stubs and campaigns take a second on the simulator; without, all is real, and
--little makes campaigns as short. `--user` must be able to read the compiler's cache that --env may name."""
import argparse
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time

# What a runner has is not what this machine must have: `cmake` "builds" the program under test, `ctest` writes its report
# as ctest does, the long scripts only say that they ran.
STUBS = {
    # `cmake --preset P -B FOLDER` and `cmake -B FOLDER`.
    "cmake": 'for word; do [[ $last == -B || $last == --build ]] && build=$word; last=$word; done\n'
             'mkdir -p "$build/bin" && ln -sf "$REAL_LOCKSTEP" "$build/bin/lockstep"\n',
    "ctest": 'for word; do case $last in --output-junit) mkdir -p "$(dirname "$word")"; echo "<testsuite/>" >"$word" ;;\n'
             '--resource-spec-file) [[ -s $word ]] || exit 9 ;; esac; last=$word; done\n',
    "dpkg-query": "echo installed\n",
    "nvidia-smi": 'echo "GPU 0: NVIDIA H200 (UUID: GPU-a)"; echo "GPU 1: NVIDIA H200 (UUID: GPU-b)"\n',
}
# Campaigns of a second and three cases, in place of what a night takes. Those that must draw something, or fail, run a few
# cases that do; time alone would be wasted on a fast machine, and too short on a slow one.
# Under a sanitizer all takes longer: tests/support/patience.h.
PATIENCE = int(os.environ.get("LOCKSTEP_TEST_PATIENCE", "1"))
LITTLE = ((r"\bBUDGET=\d+(.* --with \S+)", rf"SEED=7 BUDGET={300 * PATIENCE}\1 --count 12"), (r"\bBUDGET=\d+(?!.*--with)", "BUDGET=1"), (r"\bCASES=\d+", "CASES=3"))
STUBBED_SCRIPTS = {"ci/fuzz_target.sh": 'mkdir -p "$OUT"\n', "ci/gpu.sh": 'mkdir -p "$OUT" && echo held >"$OUT/summary.txt"\n'}


def github_jobs(pipeline):
    """{job: (environment, [shell text of each step])}; expressions of GitHub's become a number: shard 1 of 4."""
    plain = lambda text: re.sub(r"\$\{\{.*?\}\}", "1", str(text).replace("${{ strategy.job-total }}", "4"))
    return {name: ({key: plain(text) for key, text in job.get("env", {}).items() if key != "SANITIZER"},
                   [plain(step["run"]) for step in job["steps"] if "run" in step])
            for name, job in pipeline["jobs"].items()}


def gitlab_jobs(pipeline):
    """The same; a job's lines are one text, since its runner gives them to one shell."""
    # A job that is `parallel` has an index.
    env = lambda job: {"CI_PIPELINE_ID": "7", **({"CI_NODE_INDEX": "1", "CI_NODE_TOTAL": "4"} if "parallel" in job else {})}
    return {name: (env(job), ["\n".join(job["script"])])
            for name, job in pipeline.items() if isinstance(job, dict) and "script" in job}


def jobs_of(root, pipeline):
    import yaml
    file, reader = {"github": ("github-actions.yml", github_jobs), "gitlab": ("gitlab-ci.yml", gitlab_jobs)}[pipeline]
    return reader(yaml.safe_load((root / "ci" / file).read_text()))


# What a step can read where its builds are stubs.
READ = {"ci", "scenarios"}


def copy_tree(root, folder, only=None):
    """The tree as a checkout has it: what git knows, or where there is no git, all but builds. `only`: of the folders, these."""
    wanted = lambda name: only is None or "/" not in name or name.split("/")[0] in only
    # Root may be asked for the checkout of somebody else, which git refuses unless it is told.
    listed = shutil.which("git") and subprocess.run(["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=False)
    if listed is None or listed.returncode:
        left_out = lambda here, names: {name for name in names if name == ".git" or (
            name.startswith("build") and (pathlib.Path(here) / name).is_dir()) or (
            pathlib.Path(here) == root and (root / name).is_dir() and not wanted(f"{name}/"))}
        shutil.copytree(root, folder, ignore=left_out, dirs_exist_ok=True)
        return
    for name in filter(None, listed.stdout.decode().split("\0")):
        if wanted(name) and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/usr/bin/env bash\nset -euo pipefail\nlast=\n" + text)
    path.chmod(0o755)


def run_steps(folder, env, steps, user):
    """[(step, exit status, seconds, output)], up to the first that fails."""
    rows = []
    for step in steps:
        as_root = user is None or step.startswith("sudo ")
        who = {} if as_root else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        # A container has no sudo, whoever its user is.
        without = user is not None or shutil.which("sudo") is None
        text = re.sub(r"^sudo (-E )?", "", step) if without else step
        began = time.monotonic()
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], cwd=folder, env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, check=False, **who)
        rows.append((step, done.returncode, time.monotonic() - began, done.stdout))
        if done.returncode:
            break
    return rows


def run_job(root, pipeline, job, user="", stubs_for="", steps=None, little=False, more_env=None):
    """Runs a job, or `steps` in its place, in a new folder. `stubs_for`: the program that builds stand for."""
    env_of_job, steps_of_job = jobs_of(root, pipeline)[job]
    steps = steps_of_job if steps is None else steps
    person = pwd.getpwnam(user) if user and os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as temporary:
        pathlib.Path(temporary).chmod(0o755)
        folder, home = pathlib.Path(temporary) / "checkout", pathlib.Path(temporary) / "home"
        home.mkdir()
        copy_tree(root, folder, READ if stubs_for else None)
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "CI": "true", **env_of_job}
        if stubs_for:
            for name, text in STUBS.items():
                script(home / "bin" / name, text)
            for name, text in STUBBED_SCRIPTS.items():
                script(folder / name, text)
            env.update(PATH=f"{home / 'bin'}:{env['PATH']}", REAL_LOCKSTEP=stubs_for)
            steps = [re.sub(r"\bDEVICE=cuda\b", "DEVICE=sim", step) for step in steps]
            env = {"SCENARIOS": "scenarios/library/recompute/recompute-eager.yaml", "SANITIZER": "address", **env}
            env = {key: "sim" if key == "DEVICE" else text for key, text in env.items()}
        if stubs_for or little:
            for asked, given in LITTLE:
                steps = [re.sub(asked, given, step) for step in steps]
        env.update(more_env or {})
        if person is not None:
            for path in [folder, home, *folder.rglob("*"), *home.rglob("*")]:
                os.chown(path, person.pw_uid, person.pw_gid)
        rows = run_steps(folder, env, steps, person)
        made = sorted(str(path.relative_to(folder)) for path in (folder / "out").rglob("*") if path.is_file())
    return rows, made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--pipeline", choices=("github", "gitlab"), required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--user", default="nobody")
    parser.add_argument("--stubs", default="", metavar="LOCKSTEP")
    parser.add_argument("--little", action="store_true", help="campaigns take a second, all else is real")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the steps, such as CMAKE_OPTIONS")
    options = parser.parse_args()
    rows, made = run_job(options.root.resolve(), options.pipeline, options.job, options.user, options.stubs, None,
                         options.little, dict(one.split("=", 1) for one in options.env))
    for step, status, seconds, output in rows:
        print(f"== {step}\n{output[-6000:]}== exit {status}, {seconds:.0f} s")
    print(f"{options.pipeline} {options.job}: {len(rows)} steps, {len(made)} files under out/: {' '.join(made[:12])}")
    return 1 if rows[-1][1] else 0


if __name__ == "__main__":
    sys.exit(main())
