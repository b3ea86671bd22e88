"""What a PyTorch engine did, counted from outside of it, and amplifiers that make its races show. Needs PyTorch."""
import contextlib
import weakref

import torch

COLLECTIVES = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce", "all_gather", "reduce_scatter", "broadcast")


class Evidence:
    """While it is entered, by wrapping the calls themselves: `captures` and `replays` of CUDA graphs, `collectives`, and bytes that
    Tensor.copy_ and Tensor.to copied to pinned memory (`offloaded`) and from there to the device (`reloaded`).

    A copy that is captured counts at each replay of its graph. CUPTI would count copies at the device, but not these alone: FSDP2's
    kernels bring their descriptors from pinned memory too."""

    def __init__(self):
        self.captures = self.replays = self.collectives = self.offloaded = self.reloaded = 0
        self._captured, self._of_graph = None, weakref.WeakKeyDictionary()
        self._undo = contextlib.ExitStack()

    def __enter__(self):
        if torch.cuda.is_available():
            self._wrap(torch.cuda.CUDAGraph, "capture_begin", self._begin)
            self._wrap(torch.cuda.CUDAGraph, "capture_end", self._end)
            self._wrap(torch.cuda.CUDAGraph, "replay", self._replay)
            self._wrap(torch.Tensor, "copy_", lambda to, source, *_: self._copy(source, to))
            self._wrap(torch.Tensor, "to", lambda source, *_: None, self._copy)
        if torch.distributed.is_available():
            for name in COLLECTIVES:
                self._wrap(torch.distributed, name, self._collective)
        return self

    def _wrap(self, owner, name, before, after=lambda *_: None):
        """`before` sees the positional arguments, `after` the first of them and the result."""
        original = getattr(owner, name)

        def wrapped(*arguments, **named):
            before(*arguments)
            result = original(*arguments, **named)
            after(arguments[0] if arguments else None, result)
            return result

        setattr(owner, name, wrapped)
        self._undo.callback(setattr, owner, name, original)

    def _begin(self, graph, *_):
        self.captures += 1
        self._captured = self._of_graph[graph] = [0, 0]

    def _end(self, *_):
        self._captured = None

    def _replay(self, graph):
        self.replays += 1
        offloaded, reloaded = self._of_graph.get(graph, (0, 0))
        self.offloaded += offloaded
        self.reloaded += reloaded

    def _collective(self, *_):
        self.collectives += 1

    def _copy(self, source, to):
        if not isinstance(source, torch.Tensor) or source.is_cuda == to.is_cuda or not (to if source.is_cuda else source).is_pinned():
            return
        out, back = (source.nbytes, 0) if source.is_cuda else (0, source.nbytes)
        if self._captured is None:
            self.offloaded += out
            self.reloaded += back
        else:
            self._captured[0] += out
            self._captured[1] += back

    def __exit__(self, *_):
        self._undo.close()


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
