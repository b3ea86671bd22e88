"""Safetensors files and digests."""
import hashlib
import json
import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lockstep_adapter.tensors import BadFile, Tensor, counts, digest, read_file, write_file  # noqa: E402


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "file"

    def tearDown(self):
        self.folder.cleanup()

    def test_a_file_reads_back(self):
        tensors = {"a": Tensor.of("F32", [2, 3], range(6)), "scalar": Tensor.of("I64", [], [-(2**63)]),
                   "none": Tensor.of("F64", [0, 4], []), "half": Tensor("BF16", [2], b"\x80\x3f\x00\xc0"),
                   "true": Tensor("BOOL", [3], b"\1\0\1")}
        write_file(self.path, tensors)
        again = read_file(self.path)
        self.assertEqual(list(again), list(tensors))
        for name, tensor in tensors.items():
            self.assertEqual((again[name].dtype, again[name].shape, again[name].data), (tensor.dtype, tensor.shape, tensor.data))
        self.assertEqual(again["half"].values(), [1.0, -2.0])

    def test_the_bytes_are_those_of_the_format(self):
        write_file(self.path, {"x": Tensor.of("I32", [2], [1, -1])})
        header = b'{"x":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}}'
        header += b" " * (-len(header) % 8)
        self.assertEqual(self.path.read_bytes(), struct.pack("<Q", len(header)) + header + b"\1\0\0\0\xff\xff\xff\xff")

    def test_a_file_is_never_written_over(self):
        write_file(self.path, {})
        with self.assertRaises(OSError):
            write_file(self.path.with_name("no") / "folder", {})
        self.assertEqual(read_file(self.path), {})

    def test_what_is_no_such_file_is_refused(self):
        def file(header, data=b""):
            text = header if isinstance(header, bytes) else json.dumps(header).encode()
            return struct.pack("<Q", len(text)) + text + data

        def one(dtype="F32", shape=(1,), offsets=(0, 4)):
            return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}

        self.path.write_bytes(file(one(), b"1234"))
        read_file(self.path)
        bad = [b"", b"1234567", struct.pack("<Q", 2**63) + b"{}", file(b"{"), file([]), file({"x": 1}), file(one(), b"123"),
               file(one(), b"12345"), file(one("F31"), b"1234"), file(one(shape=(-1,)), b"1234"), file(one(shape=(2,)), b"1234"),
               file(one(offsets=(1, 5)), b"12345"), file(one(offsets=(0,)), b"1234"), file(b'{"x":\xff}'),
               file({**one(), "y": one()["x"]}, b"1234")]
        for text in bad:
            self.path.write_bytes(text)
            with self.assertRaises(BadFile, msg=text):
                read_file(self.path)


class Digests(unittest.TestCase):
    def test_a_negative_zero_is_a_positive_one(self):
        for dtype, one, zero, negative in (("F32", 0x3F800000, "<I", 1 << 31), ("F64", 0x3FF0000000000000, "<Q", 1 << 63),
                                           ("F16", 0x3C00, "<H", 1 << 15), ("BF16", 0x3F80, "<H", 1 << 15)):
            plain = struct.pack(zero, one) + struct.pack(zero, 0)
            self.assertEqual(digest(dtype, plain), hashlib.sha256(plain).hexdigest())
            self.assertEqual(digest(dtype, struct.pack(zero, one) + struct.pack(zero, negative)), digest(dtype, plain))
            self.assertNotEqual(digest(dtype, struct.pack(zero, one | negative) + struct.pack(zero, 0)), digest(dtype, plain))
        self.assertNotEqual(digest("I32", struct.pack("<I", 1 << 31)), digest("I32", bytes(4)))

    def test_nan_and_zero_are_counted(self):
        nan, infinity = float("nan"), float("inf")
        self.assertEqual(counts("F32", Tensor.of("F32", [6], [nan, -nan, infinity, 0.0, -0.0, 1e-45]).data), (2, 4))
        self.assertEqual(counts("F64", Tensor.of("F64", [3], [nan, infinity, 5e-324]).data), (1, 3))
        self.assertEqual(counts("BF16", struct.pack("<4H", 0x7F80, 0x7F81, 0xFFC0, 0x8000)), (2, 3))
        self.assertEqual(counts("F16", struct.pack("<3H", 0x7C00, 0xFC01, 0)), (1, 2))
        self.assertEqual(counts("I32", struct.pack("<3i", 0, -1, 256)), (0, 2))

    def test_nothing_has_the_digest_of_nothing(self):
        self.assertEqual(digest("F32", b""), hashlib.sha256(b"").hexdigest())


if __name__ == "__main__":
    unittest.main()
