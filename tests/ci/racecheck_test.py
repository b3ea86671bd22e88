"""What ci/gpu.sh makes of racecheck's words, with a GPU and a sanitizer that are scripts."""
import argparse
import os
import pathlib
import subprocess
import tempfile

ATTENTION = "void lockstep::attention_forward_bf16<lockstep::TileBlock<(int)1>, (int)64>(lockstep::AttentionForward<lockstep::bf16>)"
OTHER = "void lockstep::scan_forward<float>(lockstep::ScanForward<float>)"


def words(kernels, more=""):
    lines = ["========= COMPUTE-SANITIZER"]
    for kernel in kernels:
        lines.append(f"========= Error: Race reported between Read access at {kernel}+0x1ed0")
        lines.append(f"=========     and Write access at {kernel}+0x13220 [96 hazards]")
    lines += [more] if more else []
    lines.append(f"========= RACECHECK SUMMARY: {len(kernels)} hazards displayed ({len(kernels)} errors, 0 warnings)")
    return "\n".join(lines)


# (what it says, its exit status, whether the row holds)
CASES = [
    (words([]), 0, True),
    (words([ATTENTION] * 28), 9, True),
    (words([ATTENTION] * 27 + [OTHER]), 9, False),
    (words([OTHER]), 9, False),
    (words([ATTENTION] * 100), 9, False),  # Others may not have been printed.
    (words([ATTENTION], "FAIL full-iteration (fp32) violated by loss: loss differs from the oracle's"), 9, False),
    (words([]), 9, False),
    (words([]), 1, False),
]


def script(path, text):
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    root = parser.parse_args().root
    failed = 0
    for said, status, holds in CASES:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            script(folder / "nvidia-smi", 'echo "GPU 0: none"\n')
            (folder / "said").write_text(said + "\n")
            script(folder / "compute-sanitizer", f'cat "{folder}/said"; exit {status}\n')
            env = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", OUT=str(folder / "out"))
            env.update(GPU_STAGES="racecheck.full-iteration", BUILD="none")
            ran = subprocess.run(["bash", str(root / "ci/gpu.sh")], env=env, capture_output=True, text=True, timeout=60)
            held = ran.returncode == 0 and "racecheck.full-iteration     held" in ran.stdout
            if held != holds or (not holds and ran.returncode != 1):
                print(f"{said}\nwith status {status}: ci/gpu.sh left with {ran.returncode}: {ran.stdout}{ran.stderr}")
                failed += 1
    print(f"racecheck: {failed} of {len(CASES)} cases are judged wrongly")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
