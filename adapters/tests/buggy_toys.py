"""The toy engine with one fault each: `python3 buggy_toys.py NAME`. FAULTS says which relation finds it."""
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
from toy_engine import Model, Tensor, ToyEngine, serve  # noqa: E402


class OverwritesGradients(Model):
    def backward(self, tokens, state, scale):
        self.gradients = self.zeros()
        super().backward(tokens, state, scale)


class KeepsGradients(Model):
    """The gradients of a step are added to those of the steps before."""

    kept = None

    def zeros(self):
        KeepsGradients.kept = KeepsGradients.kept or super().zeros()
        return KeepsGradients.kept if hasattr(self, "gradients") else super().zeros()


class BakesTheScale(Model):
    baked = None

    def backward(self, tokens, state, scale):
        BakesTheScale.baked = BakesTheScale.baked or scale
        super().backward(tokens, state, BakesTheScale.baked)


class LeaksForward(Model):
    """A row sees the token of the row before it, across documents."""

    def forward(self, tokens, targets):
        losses, state = super().forward([t if i % 8 else tokens[i - 1] for i, t in enumerate(tokens)], targets)
        return losses, state


class LeaksBackward(Model):
    """Rows without a target have a gradient too: it is scaled down instead of left out."""

    def forward(self, tokens, targets):
        losses, (x, final, dlogits, saved) = super().forward(tokens, targets)
        dlogits = [row if any(row) else [1e-3 * y[0]] * len(row) for row, (y, _) in zip(dlogits, final)]
        return losses, (x, final, dlogits, saved)


class ReadsPadding(Model):
    def forward(self, tokens, targets):
        losses, state = super().forward(tokens, targets)
        return [loss * (1 + 1e-9 * tokens[-1]) for loss in losses], state


class ForgetsAMoment(Model):
    """A checkpoint without the second moment."""

    def load(self, path):
        super().load(path)
        self.v = self.zeros()


class DropsTheFirstMicrobatch(Model):
    """Gradients of the first backward pass of a step are lost: an accumulator that begins too late."""

    def backward(self, tokens, state, scale):
        first = not any(any(row) for row in self.gradients["head.weight"])
        super().backward(tokens, state, scale)
        if first and not hasattr(self, "late"):
            self.late, self.gradients = True, self.zeros()


def with_model(model):
    return type(model.__name__, (ToyEngine,), {"Model": model})


class AnotherEachTime(ToyEngine):
    runs = 0

    def tell(self, out, kind, model, values, step):
        self.runs += kind == "gradient"
        if kind == "gradient":
            values["head.weight"][0][0] += self.runs
        super().tell(out, kind, model, values, step)


class Lies(ToyEngine):
    def run(self, request, out):
        return {**super().run(request, out), "microbatches": 1}


class MovesRows(ToyEngine):
    def pack(self, request, documents):
        rows, tokens, targets = super().pack(request, documents)
        return [[begin + 1, end + 1] for begin, end in rows], tokens, targets


class DropsTensors(ToyEngine):
    def tell(self, out, kind, model, values, step):
        super().tell(out, kind, model, {name: rows for name, rows in values.items() if name != "head.weight"}, step)


class ChangesAShape(ToyEngine):
    runs = 0

    def run(self, request, out):
        self.runs += 1
        return super().run(request, out)

    def tell(self, out, kind, model, values, step):
        if self.runs > 1:
            model.shapes["head.weight"] = model.shapes["head.weight"][::-1]
        super().tell(out, kind, model, values, step)


class NotANumber(ToyEngine):
    def tell(self, out, kind, model, values, step):
        if kind == "gradient":
            values["final_norm.gain"][0][0] = float("nan")
        super().tell(out, kind, model, values, step)


class Breaks(ToyEngine):
    """Does something to the process in the middle of a run."""

    def run(self, request, out):
        out.phase("step 0")
        self.act(int(os.environ["LOCKSTEP_ENGINE_FDS"].split(",")[1]))
        return super().run(request, out)


class Crashes(Breaks):
    def act(self, _fd):
        os.kill(os.getpid(), signal.SIGSEGV)


class Exits(Breaks):
    def act(self, _fd):
        print("the last words", flush=True)
        os._exit(0)


class Hangs(Breaks):
    def act(self, _fd):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", f"1000.{os.getppid()}"])  # It has to be ended too.
        time.sleep(1000)


class WritesGarbage(Breaks):
    def act(self, fd):
        os.write(fd, b"\xff\xfe what?\n")


class AnswersTwice(Breaks):
    def act(self, fd):
        os.write(fd, b'{"id":1,"ok":true}\n')


class WritesALongLine(Breaks):
    def act(self, fd):
        piece = b"x" * (1 << 20)
        for _ in range(1 << 10):
            os.write(fd, piece)


class Prints(Breaks):
    def act(self, _fd):
        for _ in range(1000):
            print('{"id":3,"ok":true}' * 100)


class Raises(Breaks):
    def act(self, _fd):
        raise RuntimeError("no such layer")


# Name: (engine, what finds it). R1 is asked first, then the relations in the order of their numbers.
FAULTS = {
    "overwrites-gradients": (with_model(OverwritesGradients), "R11"),
    "drops-the-first-microbatch": (with_model(DropsTheFirstMicrobatch), "R10"),
    "keeps-gradients": (with_model(KeepsGradients), "R1"),
    "bakes-the-scale": (with_model(BakesTheScale), "R12"),
    "leaks-forward": (with_model(LeaksForward), "R6"),
    "leaks-backward": (with_model(LeaksBackward), "R7"),
    "reads-padding": (with_model(ReadsPadding), "R8"),
    "forgets-a-moment": (with_model(ForgetsAMoment), "R13"),
    "another-each-time": (AnotherEachTime, "R1"),
    "lies": (Lies, "counters"),
    "moves-rows": (MovesRows, "R6"),
    "drops-tensors": (DropsTensors, "protocol"),
    "changes-a-shape": (ChangesAShape, "R1"),
    "not-a-number": (NotANumber, "nan"),
    "crashes": (Crashes, "crash"),
    "exits": (Exits, "crash"),
    "hangs": (Hangs, "watchdog"),
    "writes-garbage": (WritesGarbage, "protocol"),
    "answers-twice": (AnswersTwice, "protocol"),
    "writes-a-long-line": (WritesALongLine, "protocol"),
    "prints": (Prints, None),
    "raises": (Raises, "failed"),
}

if __name__ == "__main__":
    serve(FAULTS[sys.argv[1]][0](), [])
