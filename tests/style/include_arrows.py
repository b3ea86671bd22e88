"""The arrows of the house: which folder may include which, down to the rooms, and where CUDA may be named."""
import re

import ratchets
import source

ALLOWED = {
    "kernels": set(),
    "scenarios": set(),
    "engine": {"kernels", "scenarios"},
    "oracle": {"scenarios"},  # The judge shares no code with the accused.
    "harness": {"kernels", "scenarios", "engine", "oracle"},
    "tests": {"kernels", "scenarios", "engine", "oracle", "harness"},
}
# The rooms of each folder by floors, the ground first: a room may include the rooms of lower floors, and of its own floor
# none. docs/architecture.md says what each is for. `kernels/cuda` alone is the table of all of its families.
FLOORS = {
    "kernels": [
        ["core"],
        ["ops", "cuda/common"],
        ["moe", "diagnostics"],
        ["host", "host/fp8", "submission", "cuda/attention", "cuda/gemm", "cuda/mamba", "cuda/moe", "cuda/norm", "cuda/ops"],
        ["cuda"],
    ],
    "scenarios": [[""], ["syntax", "documents"], ["schema"], ["rules"], ["io"], ["reference"]],
    "engine": [
        ["device", "plan", "cuda/launches"],
        ["rendezvous", "sim", "cuda", "graphs"],
        ["comm"],
        ["checkpoint", "tensors"],
        ["data", "offload", "parameters"],
        ["memory"],
        ["fsdp", "nn"],
        ["train"],
    ],
    "oracle": [["arithmetic"], ["ops"], ["model"], [""]],
    "harness": [
        ["base", "access", "costs", "inject"],
        ["checker"],
        ["explore"],
        ["case"],
        ["expect"],
        ["generate", "recount", "report"],
        ["judge", "page"],
        ["run", "wire"],
        ["bench", "campaign", "foreign", "megatron", "mutate", "shrink", "verify"],
        ["packing", "peer", "ranks"],
        ["cli"],
    ],
}
DEVICE_FOLDERS = ("kernels/cuda/", "engine/cuda/")
CUDA_HEADER = re.compile(r"(cuda|cublas|cudnn|nccl|cub/|cooperative_groups|nvtx|mma\.h|thrust/)")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
LINK = re.compile(r"lockstep_module\(\s*(\w+)[^)]*?USES([^)]*)\)")


def complaints_of(name, text, exists):
    """Complaints about one file; `name` is its path from the root, `exists` tells whether such a path is there."""
    folder = name.split("/")[0]
    device = name.startswith(DEVICE_FOLDERS) or re.fullmatch(r"tests/.*(_test\.cu|_listener\.cpp)", name)
    if name.endswith((".cu", ".cuh")) and not device:
        yield f"{name}: device code lives in kernels/cuda or engine/cuda, or is a test"
    for match in INCLUDE.finditer(source.code(text, literals=True)):
        line = text.count("\n", 0, match.start(2)) + 1
        quote, target = match[1], match[2]
        place = f"{name}:{line}: includes {target}"
        if quote == "<":
            if CUDA_HEADER.match(target) and not device:
                yield f"{place}: CUDA headers stay in kernels/cuda and engine/cuda"
            continue
        other = target.split("/")[0]
        if "/" not in target or target.startswith(".") or not exists(target):
            yield f"{place}: write the path from the root of the repository"
        elif other != folder and other not in ALLOWED[folder]:
            yield (f"{place}: {folder} may include {', '.join(sorted(ALLOWED[folder])) or 'nothing of ours'}: move what both need there, "
                   "or have the caller pass it in (docs/architecture.md)")


def rooms_below():
    """{room: the rooms of its folder that it may include}."""
    allowed = {}
    for top, floors in FLOORS.items():
        below = set()
        for floor in floors:
            rooms = {f"{top}/{room}".rstrip("/") for room in floor}
            allowed.update({room: set(below) for room in rooms})
            below |= rooms
    return allowed


def room_complaints(texts):
    """Arrows between rooms that do not go down, rooms that no floor has, and circles, which there can be none of then."""
    allowed = rooms_below()
    edges = ratchets.folder_edges(texts)
    for room in sorted({name.rsplit("/", 1)[0] for name in texts}):
        if room not in allowed:
            yield f"{room}: give the room a floor in FLOORS of tests/style/include_arrows.py, and a line in docs/architecture.md"
            continue
        for other in sorted(edges.get(room, ())):
            if other.split("/")[0] == room.split("/")[0] and other not in allowed[room]:
                where = next(name for name, text in texts.items() if name.rsplit("/", 1)[0] == room and any(
                    target in texts and target.rsplit("/", 1)[0] == other for target in ratchets.INCLUDE.findall(text)))
                yield (f"{where}: {room} includes {other}, which is not on a lower floor: move what both need down, "
                       "or have the caller pass it in (docs/architecture.md)")
    for circle in ratchets.circles(edges):
        yield f"these include each other: {' '.join(circle)}: one of the includes must go, or what both need moves down"


def link_complaints(name, text):
    """The target graph is the folder picture. A folder may build a part of itself as a library of its own."""
    folder = name.split("/", 1)[0]
    own = {module for module, _ in LINK.findall(text)}
    for module, uses in LINK.findall(text):
        for other in re.findall(r"lockstep::(\w+)", uses):
            if other not in own | ALLOWED.get(folder, set()):
                yield f"{name}: lockstep_module({module}) may not use lockstep::{other}"


def test_itself():
    bad = {
        "oracle/a.cpp": '#include "kernels/ops/linear.h"\n',
        "kernels/a.h": '  #  include "engine/device/device.h"\n',
        "engine/a.cpp": '#include "device.h"\n',
        "engine/b.cpp": "#include <cuda_runtime.h>\n",
        "engine/c.cu": "",
        "scenarios/a.h": '#include "scenarios/missing.h"\n',
    }
    for name, text in bad.items():
        assert list(complaints_of(name, text, lambda path: "missing" not in path)), name
    for name, text in {"engine/cuda/a.cpp": "#include <cuda_runtime.h>\n", "harness/a.cpp": '#include "oracle/oracle.h"\n',
                       "oracle/b.cpp": '// #include "kernels/ops/linear.h"\n'}.items():
        assert not list(complaints_of(name, text, lambda path: True)), name
    up = {"engine/device/a.h": '#include "engine/comm/b.h"\n', "engine/comm/b.h": ""}
    assert [text.startswith("engine/device/a.h: engine/device includes engine/comm, which is not on a lower floor: move") for text in
            room_complaints(up)] == [True]
    circle = dict(up, **{"engine/comm/b.h": '#include "engine/device/a.h"\n'})
    assert any("each other" in text for text in room_complaints(circle))
    assert list(room_complaints({"engine/cellar/a.h": ""})) and not list(room_complaints({"engine/comm/b.h": ""}))
    assert list(link_complaints("x", "lockstep_module(oracle SOURCES a USES lockstep::kernels)"))


def main():
    test_itself()
    root = source.parser(__doc__).parse_args().root
    files = source.files(root)
    complaints = []
    for path in files:
        complaints += complaints_of(str(path.relative_to(root)), path.read_text(), lambda target: (root / target).is_file())
    named = {str(path.relative_to(root)): path for path in files}
    complaints += room_complaints(
        {name: path.read_text() for name, path in named.items() if name.split("/")[0] in FLOORS})
    for folder in ALLOWED:
        path = root / folder / "CMakeLists.txt"
        complaints += link_complaints(str(path.relative_to(root)), path.read_text())
    source.finish(complaints, len(files), "include arrows")


if __name__ == "__main__":
    main()
