"""Writes a compile database that Clang can read: that of a GCC build without its precompiled headers and its launcher.

  tidy_database.py compile_commands.json FOLDER    writes FOLDER/compile_commands.json"""
import json
import pathlib
import re
import shlex
import sys

# What GCC alone knows: how it uses a precompiled header, and warnings by names of its own.
DROPPED = re.compile(r"-Winvalid-pch|-fpch-preprocess|-Wno-(restrict|maybe-uninitialized|stringop-\w+|dangling-reference)")
SHIM = str(pathlib.Path(__file__).resolve().parent / "clang_source_location.h")
LAUNCHER = re.compile(r"(.*/)?(env|ccache)|\w+=.*")


def without_pch(command):
    words = shlex.split(command)
    while words and LAUNCHER.fullmatch(words[0]):
        words.pop(0)
    kept, skip = [], False
    for word, following in zip(words, words[1:] + [""]):
        if skip or DROPPED.fullmatch(word):
            skip = False
        elif word == "-include" and "cmake_pch" in following:
            skip = True
        else:
            kept.append(word)
    return kept[:1] + ["-include", SHIM] + kept[1:]


def main():
    assert without_pch("env A=b ccache c++ -Winvalid-pch -include x/cmake_pch.hxx -O1 -include y.h -c a.cpp") == [
        "c++", "-include", SHIM, "-O1", "-include", "y.h", "-c", "a.cpp"]
    entries = json.loads(pathlib.Path(sys.argv[1]).read_text())
    ours = [{"directory": entry["directory"], "file": entry["file"], "arguments": without_pch(entry["command"])}
            for entry in entries if "cmake_pch" not in entry["file"]]
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(ours, indent=1))


if __name__ == "__main__":
    main()
