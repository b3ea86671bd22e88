#!/usr/bin/env python3
"""200 steps of real text in fp8: killed twice and resumed on other ranks, against a run of one piece and the oracle.

For each recipe three runs print the same line for the last step, with the digests of weights and, under `delayed`,
of the scaling state: the oracle's, one of the engine that nothing interrupts, and one that begins on four ranks, is
killed, goes on alone, is killed again, and ends on two. The loss at the end is near that of bf16.
"""
import argparse
import pathlib
import subprocess
import tempfile
import time

STEPS = 200
SCENARIO = """schema: 1
name: licences-fp8
numerics: [{numerics}]
model: {{pattern: "M*-E", hidden: 48, attention: {{heads: 3, kv_heads: 1}}, mamba: {{d_inner: 96}}, mlp: {{hidden: 144}}, \
moe: {{experts: 4, top_k: 1, hidden: 48, shared_hidden: 32, aux_loss: 0.01}}}}
data: {{kind: text, path: {texts}, pack_length: 160}}
training: {{steps: {steps}, microbatches: {microbatches}, in_flight: 1, optimizer: {{lr: 3.0e-3, min_lr: 3.0e-4, \
schedule: cosine, lr_warmup: 20, weight_decay: 0.1}}}}
fp8: {{recipe: {recipe}, history: 16, margin: 1{gather}}}
fsdp: {{strategy: {strategy}}}
parallel: {{data: {ranks}}}
"""


class Runs:
    """Runs of one recipe, in a folder of their own."""

    def __init__(self, lockstep, folder, texts, recipe, numerics="fp8"):
        self.lockstep, self.folder, self.texts = lockstep, folder, texts
        self.recipe, self.numerics = recipe, numerics

    def scenario(self, ranks, strategy):
        gather = ", param_gather: true" if strategy == "optim_grads_params" else ""
        path = self.folder / f"{self.numerics}-{self.recipe}-{ranks}.yaml"
        path.write_text(SCENARIO.format(
            numerics=self.numerics, texts=self.texts, steps=STEPS, microbatches=4 // ranks, recipe=self.recipe,
            gather=gather, strategy=strategy, ranks=ranks))
        return path

    def command(self, ranks, strategy, *options):
        return [self.lockstep, "train", "--quiet", "--device", "sim", *options, str(self.scenario(ranks, strategy))]

    def last_line(self, command):
        ran = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=True)
        return [line for line in ran.stdout.splitlines() if line.startswith(f"step {STEPS}  loss")][-1]

    def killed_behind(self, step, command):
        """Starts the command and kills it once it has printed the digest of a step behind `step`; returns that step."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            words = line.split()
            if line.startswith("step ") and int(words[1]) > step:
                time.sleep(0.01)  # Somewhere in a later step, or while a checkpoint is written.
                process.kill()
                process.wait()
                return int(words[1])
        raise AssertionError(f"the run ended before step {step} with status {process.wait()}")

    def resumed(self):
        state = str(self.folder / f"{self.recipe}.state")
        saves = ["--checkpoint", state, "--checkpoint-every", "7", "--digest-every", "1"]
        first = self.killed_behind(60, self.command(4, "optim_grads_params", *saves))
        second = self.killed_behind(
            130, self.command(1, "optim_grads", "--resume", state, *saves, "--checkpoint-within", "2"))
        print(f"{self.recipe}: killed in steps {first} and {second}")
        return self.last_line(self.command(2, "optim_grads", "--resume", state))


def loss_of(line):
    return float(line.split()[3])


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lockstep", required=True)
    options.add_argument("--texts", default="/usr/share/common-licenses")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: Runs(options.lockstep, pathlib.Path(folder), options.texts, *of)
                for name, of in {"bf16": ("current", "bf16"), "current": ("current",), "delayed": ("delayed",)}.items()}
        plain = loss_of(runs["bf16"].last_line(runs["bf16"].command(1, "optim_grads")))
        for recipe in ("current", "delayed"):
            run = runs[recipe]
            whole = run.last_line(run.command(1, "optim_grads"))
            print(f"{recipe}: {whole}; in bf16 the loss is {plain:.6g}")
            assert ("scaling" in whole) == (recipe == "delayed"), whole
            for name, line in {"oracle": run.last_line(run.command(1, "optim_grads", "--oracle")),
                               "killed and resumed on other ranks": run.resumed()}.items():
                assert line == whole, f"{recipe}: {name}: {line} instead of {whole}"
            assert abs(loss_of(whole) - plain) <= 0.02 * plain, f"{recipe}: the loss is not near {plain}"
    print("both recipes have the oracle's digests, in one piece and in three")


if __name__ == "__main__":
    main()
