"""Proves that an installed tree stands alone: installs, moves it, looks at what its programs load, runs its tests."""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# What every Linux has. The C++ runtime must come from the tree.
SYSTEM = {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
CARRIED = {"libstdc++.so.6", "libgcc_s.so.1"}


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    return done.returncode, done.stdout


def loads(program):
    """(name, path or None) of each library that the program would load."""
    _, text = run("ldd", str(program))
    for line in text.splitlines():
        found = re.match(r"\s*(\S+)(?: => (.*?)(?: \(0x[0-9a-f]+\))?$)?", line)
        if found and "ld-linux" not in found[1]:
            yield found[1], found[2]


def strangers(tree):
    for folder in ("bin", "libexec/lockstep", "lib", "lib/lockstep"):
        for program in sorted(path for path in (tree / folder).glob("*") if path.is_file()):
            for name, path in loads(program):
                if name in CARRIED and path and pathlib.Path(path).resolve().is_relative_to(tree):
                    continue
                if name not in SYSTEM and not (folder == "lib/lockstep" and name in CARRIED):
                    yield f"{program.relative_to(tree)} loads {name} from {path}"


def build_paths(tree, folders):
    """What names the machine that the tree was built on: the folders of its sources and of its build."""
    for file in sorted(path for path in tree.rglob("*") if path.is_file()):
        held = file.read_bytes()
        for folder in folders:
            found = re.search(re.escape(str(folder)).encode() + rb"(?![\w.-])[\w/.+-]*", held)
            if found:
                yield f"{file.relative_to(tree)} holds {found[0].decode()}"


def first_commands(page):
    """The commands of section 1 of docs/judge-your-engine.md, each with its exit status as its comment tells it."""
    section = re.search(r"^## 1\..*?^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for line in (section[1] if section else "").splitlines():
        command, _, comment = line.partition(" # ")
        yield command.strip(), 1 if "finds it" in comment else 0


def run_first_commands(tree, environment):
    """Runs what a new user of the installed tree reads first, in the folder that the page names. PyTorch and Perl's modules need not be there."""
    share = tree / "share/lockstep"
    commands = list(first_commands((share / "docs/judge-your-engine.md").read_text()))
    if len(commands) < 4:
        sys.exit("section 1 of docs/judge-your-engine.md has lost its commands")
    needs = {"lockstep_adapter.template": [sys.executable, "-c", "import torch"],
             "toy_engine.pl": ["perl", "-MJSON::PP", "-MDigest::SHA", "-e", "1"]}
    missing = [word for word, probe in needs.items() if shutil.which(probe[0]) is None or run(*probe)[0] != 0]
    for command, expected in commands:
        if any(word in command for word in missing):
            print(f"left out, since `{' '.join(next(needs[word] for word in missing if word in command))}` fails: {command}")
            continue
        status, text = run("bash", "-c", command, cwd=share, env={**environment, "PATH": f"{tree / 'bin'}:/usr/bin:/bin"})
        if status != expected:
            sys.exit(f"in the installed tree `{command}` left with {status} and not {expected}:\n{text[-4000:]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--ctest", default="ctest")
    parser.add_argument("--static", action="store_true")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        base = pathlib.Path(temporary).resolve()
        status, text = run(options.cmake, "--install", options.build, "--prefix", str(base / "first"))
        if status:
            sys.exit(f"cmake --install failed:\n{text[-4000:]}")
        tree = base / "moved" / "else where"
        tree.parent.mkdir()
        shutil.move(base / "first", tree)

        wrong = list(strangers(tree)) if options.static else []
        if wrong:
            sys.exit("the tree does not stand alone:\n" + "\n".join(wrong))
        built = pathlib.Path(options.build)
        named = list(build_paths(tree, [pathlib.Path(__file__).resolve().parents[2], built, built.resolve()]))
        if named:
            sys.exit("paths of the machine that built it:\n" + "\n".join(named))
        if "/first" in (tree / "share/lockstep/CTestTestfile.cmake").read_text():
            sys.exit("the installed test file names the folder it was installed to")

        listed = (tree / "share/lockstep/CTestTestfile.cmake").read_text()
        lacking = {file for file in re.findall(r"\$\{root\}/([^\s\"\]]+)", listed) if not (tree / "share/lockstep" / file).exists()}
        if lacking:
            sys.exit("tests of the installed tree name files that it has not: " + " ".join(sorted(lacking)))

        # No compiler, no source, no build folder: an empty environment and a foreign working directory.
        status, text = run(
            options.ctest, "--test-dir", str(tree / "share/lockstep"), "--no-tests=error", "--output-on-failure", "-R",
            r"^(install\.exceptions_cross_the_object|kernels\.contract|kernels\.any_op|harness\.cli|"
            r"scenario\.library\.(packed-fallback-mix|empty-documents|gqa-tied|refused\.moe-twice))$",
            cwd="/", env={"PATH": "/usr/bin:/bin", "HOME": str(base)})
        print(text)
        ran = re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+)", text, re.MULTILINE)
        if status or not any(name.startswith("scenario.") for name in ran):
            sys.exit("the moved tree's tests failed, or none of its scenarios ran")

        kept = [p.relative_to(tree) for p in tree.rglob("*") if p.suffix in (".cpp", ".h", ".cu", ".pyc") or p.name == "__pycache__"]
        if kept:
            sys.exit("the installed tree holds sources or caches: " + " ".join(map(str, kept)))
        run_first_commands(tree, {"HOME": str(base), "PYTHONDONTWRITEBYTECODE": "1"})

        # Its scripts run where it lies.
        campaign = {"PATH": "/usr/bin:/bin", "HOME": str(base), "OUT": str(base / "out"), "DEVICE": "sim", "BUDGET": "60", "SEED": "1"}
        script = tree / "share/lockstep/ci/campaign.sh"
        status, text = run("bash", str(script), "--count", "2", cwd=base, env=campaign)
        if status or not (base / "out/campaign-0.json").exists():
            sys.exit(f"the installed campaign.sh left with {status}:\n{text[-4000:]}")
        for name in ("gpu.sh", "resource_spec.sh"):
            status, text = run("bash", str(script.parent / name), cwd=base, env={**campaign, "CUDA_VISIBLE_DEVICES": ""})
            if status != 3 or "no GPU" not in text:
                sys.exit(f"the installed {name} left with {status} where there is no GPU:\n{text[-4000:]}")
        size = sum(f.stat().st_size for f in tree.rglob("*") if f.is_file())
        print(f"moved tree: {size / 2**20:.0f} MiB, {len(ran)} tests ran")


if __name__ == "__main__":
    main()
