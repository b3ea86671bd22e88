"""Tensors as bytes: safetensors files and digests (docs/engine-protocol.md, section 3), with the standard library alone."""
import array
import hashlib
import json
import math
import os
import struct

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
CODES = {"F64": "d", "F32": "f", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "BOOL": "B"}
# Type: code of unsigned integers of that size, bits of -0, and the first bits (without sign) that are a NaN.
FLOATS = {"F64": ("Q", 1 << 63, 0x7FF0000000000001), "F32": ("I", 1 << 31, 0x7F800001), "F16": ("H", 1 << 15, 0x7C01),
          "BF16": ("H", 1 << 15, 0x7F81)}
LONGEST_HEADER = 16 << 20


class BadFile(ValueError):
    """A file that is not in the safetensors format."""


class Tensor:
    """A tensor on the host: `dtype` is a word of safetensors, `data` the little-endian bytes of its elements, row-major."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), bytes(data)
        expected = math.prod(self.shape) * SIZES[dtype]
        if len(self.data) != expected:
            raise ValueError(f"{dtype} {list(shape)} has {expected} bytes, not {len(self.data)}")

    @classmethod
    def of(cls, dtype, shape, values):
        """From numbers; not for F16 and BF16."""
        return cls(dtype, shape, array.array(CODES[dtype], values).tobytes())

    def values(self):
        """A flat list of numbers; of F16 and BF16 too."""
        if self.dtype == "F16":
            return list(struct.unpack(f"<{len(self.data) // 2}e", self.data))
        if self.dtype == "BF16":
            wide = array.array("I", [bits << 16 for bits in array.array("H", self.data)])
            return array.array("f", wide.tobytes()).tolist()
        return array.array(CODES[self.dtype], self.data).tolist()

    def digest(self, rows=None):
        """Of the whole tensor, or of its rows [begin, end)."""
        if rows is None:
            return digest(self.dtype, self.data)
        size = len(self.data) // self.shape[0] if self.shape[0] else 0
        return digest(self.dtype, self.data[rows[0] * size : rows[1] * size])

    def counts(self, pieces=None):
        """Numbers of elements that are NaN, and that are not zero; of the whole tensor, or of ranges of its rows."""
        if pieces is None:
            return counts(self.dtype, self.data)
        size = len(self.data) // self.shape[0] if self.shape[0] else 0
        return counts(self.dtype, b"".join(self.data[begin * size : end * size] for begin, end in pieces))


def with_positive_zeros(dtype, data):
    """The bytes, but each floating-point -0 is +0."""
    if dtype not in FLOATS:
        return data
    code, negative_zero, _ = FLOATS[dtype]
    words = array.array(code, data)
    if negative_zero not in words:
        return data
    return array.array(code, [0 if word == negative_zero else word for word in words]).tobytes()


def digest(dtype, data):
    return hashlib.sha256(with_positive_zeros(dtype, data)).hexdigest()


def counts(dtype, data):
    """Numbers of elements that are NaN, and that are not zero of either sign."""
    if dtype not in FLOATS:
        size = SIZES[dtype]
        return 0, sum(data[i : i + size] != bytes(size) for i in range(0, len(data), size))
    code, sign, first_nan = FLOATS[dtype]
    magnitudes = [word & (sign - 1) for word in array.array(code, data)]
    return sum(word >= first_nan for word in magnitudes), len(magnitudes) - magnitudes.count(0)


def write_file(path, tensors):
    """Writes `tensors`, name -> Tensor. The file must not exist yet; it appears whole or not at all."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [end, end + len(tensor.data)]}
        end += len(tensor.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    beside = f"{path}.part"
    with open(beside, "xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.data)
    os.rename(beside, path)


def check_entry(name, entry, begin):
    """Where this tensor's data end. They must begin at `begin`."""
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in SIZES or any(type(n) is not int or n < 0 for n in shape) or len(offsets) != 2:
        raise BadFile(f"{name}: {dtype} {shape} {offsets}")
    if offsets[0] != begin or offsets[1] - begin != math.prod(shape) * SIZES[dtype]:
        raise BadFile(f"{name}: data_offsets {offsets} leave a hole, overlap or have another size than {dtype} {shape}")
    return offsets[1]


def read_file(path):
    """name -> Tensor, in the order of the data. Raises BadFile, OSError."""
    with open(path, "rb") as file:
        text = file.read()
    length = int.from_bytes(text[:8], "little") if len(text) >= 8 else LONGEST_HEADER + 1
    if length > LONGEST_HEADER or 8 + length > len(text):
        raise BadFile(f"{path}: the header has {length} bytes, the file {len(text)}")
    try:
        header = json.loads(text[8 : 8 + length].decode())
        header.pop("__metadata__", None)
        end, tensors = 0, {}
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = end, check_entry(name, entry, end)
            tensors[name] = Tensor(entry["dtype"], entry["shape"], text[8 + length + begin : 8 + length + end])
    except BadFile:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFile(f"{path}: {type(error).__name__}: {error}") from error
    if 8 + length + end != len(text):
        raise BadFile(f"{path}: {len(text) - 8 - length - end} bytes after the last tensor")
    return tensors
