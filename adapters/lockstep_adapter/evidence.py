"""What a PyTorch engine did, counted from outside of it, and amplifiers that make its races show. Needs PyTorch."""
import contextlib
import json
import os
import tempfile

import torch

COLLECTIVES = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce", "all_gather", "reduce_scatter", "broadcast")


class Evidence:
    """While it is entered: `captures` and `replays` of CUDA graphs, and `collectives`, by wrapping the calls themselves."""

    def __init__(self):
        self.captures = self.replays = self.collectives = 0
        self._undo = contextlib.ExitStack()

    def __enter__(self):
        if torch.cuda.is_available():
            self._wrap(torch.cuda.CUDAGraph, "capture_begin", "captures")
            self._wrap(torch.cuda.CUDAGraph, "replay", "replays")
        if torch.distributed.is_available():
            for name in COLLECTIVES:
                self._wrap(torch.distributed, name, "collectives")
        return self

    def _wrap(self, owner, name, counter):
        original = getattr(owner, name)

        def wrapped(*arguments, **named):
            setattr(self, counter, getattr(self, counter) + 1)
            return original(*arguments, **named)

        setattr(owner, name, wrapped)
        self._undo.callback(setattr, owner, name, original)

    def __exit__(self, *_):
        self._undo.close()


@contextlib.contextmanager
def copied_bytes(result):
    """Adds what CUPTI saw of copies between the device and pinned memory: result["DtoH"], result["HtoD"], in bytes."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        yield
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace")
        seen.export_chrome_trace(path)
        with open(path, encoding="utf-8") as trace:
            events = json.load(trace)["traceEvents"]
    for event in events:
        name = event.get("name", "")
        for way in ("DtoH", "HtoD"):
            if name.startswith(f"Memcpy {way}") and "Pinned" in name:
                result[way] = result.get(way, 0) + int(event["args"]["bytes"])


@contextlib.contextmanager
def poisoned(on):
    """Fresh memory is NaN (or the largest integer) while this is entered, if `on`; else it is left as it is. Needs
    torch.use_deterministic_algorithms(True)."""
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = bool(on)
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = before


def delay(microseconds):
    """Holds back the current CUDA stream; nothing for 0."""
    if microseconds:
        torch.cuda._sleep(int(microseconds * 1700))  # About 1.7 cycles a nanosecond.
