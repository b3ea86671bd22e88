"""Files that only an attacker writes: checkpoints, tokens and segments whose checksums are right."""
import json
import pathlib
import struct
import subprocess
import zlib

SEGMENT_MAGIC = {False: 0x4C53736D, True: 0x4C537368}  # By whether the program is of the time before there were keys.
OUTBOX, PAGE = 1 << 20, 4096


def safetensors(metadata, tensors=(), data=b"", right=True):
    """A checkpoint with a right checksum, of tensors (name, shape, begin, end)."""
    words = "".join(f"{key}={value}\n" for key, value in sorted(metadata.items())).encode()
    metadata = dict(metadata)
    if right:
        metadata["crc32"] = str(zlib.crc32(data, zlib.crc32(words)))
    header = {"__metadata__": metadata}
    for name, shape, begin, end in tensors:
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path):
    """(metadata, tensors, data) as safetensors() takes them."""
    contents = path.read_bytes()
    length = struct.unpack("<Q", contents[:8])[0]
    header = json.loads(contents[8:8 + length])
    metadata = header.pop("__metadata__")
    metadata.pop("crc32")
    return metadata, [(name, one["shape"], *one["data_offsets"]) for name, one in header.items()], contents[8 + length:]


def checkpoint_with_a_part_twice(lockstep, folder):
    """A checkpoint of two ranks, in which both have the first half of a tensor: as @0 and as @00."""
    subprocess.run([lockstep, "train", "--quiet", "--device", "sim", "a.yaml", "--steps", "1", "--checkpoint", "ck"], cwd=folder,
                   check=True, capture_output=True)
    part = folder / "ck.a.rank-0001-of-0002"
    metadata, tensors, data = read_safetensors(part)
    tensors = [("weight/embedding.weight@00" if name.startswith("weight/embedding.weight@") else name, *rest)
               for name, *rest in tensors]
    part.write_bytes(safetensors(metadata, tensors, data))
    words = "".join(f"{key}={value}\n" for key, value in sorted(metadata.items())).encode()
    index, _, _ = read_safetensors(folder / "ck")
    index["checksum of rank 1"] = str(zlib.crc32(data, zlib.crc32(words)))
    (folder / "ck").write_bytes(safetensors(index))


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def token(form, spare=0):
    """The token of a canonical form; `spare` goes into the bits behind its last block."""
    text = form.encode()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15, 9)
    packed = bytearray(packer.compress(text) + packer.flush())
    packed[-1] |= spare
    whole = b"\1" + struct.pack("<II", crc32c(text), len(text)) + bytes(packed)
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    bits = "".join(f"{byte:08b}" for byte in whole)
    bits += "0" * (-len(bits) % 6)
    return "ls" + "".join(digits[int(bits[i:i + 6], 2)] for i in range(0, len(bits), 6))


def token_of_one_word():
    return token('{"schema":1,"name":"a","numerics":[' + ",".join(['"fp32"'] * 140000) + "]}")


def segment(old, ranks, size):
    """A file of `size` bytes that begins as a segment for so many ranks."""
    return struct.pack("<II", SEGMENT_MAGIC[old], ranks).ljust(size, b"\0")[:size]


def whole_segment(ranks):
    return PAGE + PAGE + ranks * OUTBOX


def place_for(folder, name):
    place = pathlib.Path(folder) / name
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
