"""Tensors of PyTorch as the wire wants them. Needs PyTorch, but not NumPy."""
import ctypes
import hashlib

import torch

from .tensors import Tensor

WORDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}


def bytes_of(tensor):
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.numel() else b""


class TorchTensor(Tensor):
    """A copy on the host; counts and digests are PyTorch's work, since models are large."""

    def __init__(self, tensor):
        self._host = tensor.detach().to("cpu", copy=True).contiguous()
        super().__init__(WORDS[tensor.dtype], tensor.shape, bytes_of(self._host))
        self._plain = torch.where(self._host == 0, torch.zeros_like(self._host), self._host) if tensor.is_floating_point() else self._host

    def digest(self, rows=None):
        part = self._plain if rows is None else self._plain[rows[0] : rows[1]]
        return hashlib.sha256(bytes_of(part.contiguous())).hexdigest()

    def counts(self, pieces=None):
        parts = [self._plain] if pieces is None else [self._plain[begin:end] for begin, end in pieces]
        nan = sum(int(part.isnan().sum()) for part in parts) if self._plain.is_floating_point() else 0
        return nan, sum(int((part != 0).sum()) for part in parts)


def to_torch(tensor, device="cpu"):
    """A tensor of F32, F64, I32 or I64 as one of PyTorch."""
    words = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32, "I64": torch.int64}
    if not tensor.data:
        return torch.zeros(tensor.shape, dtype=words[tensor.dtype], device=device)
    return torch.frombuffer(bytearray(tensor.data), dtype=words[tensor.dtype]).reshape(tensor.shape).to(device)
