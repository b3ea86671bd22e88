"""The files that the style checks look at, and their text without comments and literals."""
import argparse
import pathlib
import re
import sys

FOLDERS = ("kernels", "scenarios", "engine", "oracle", "harness", "tests")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
TOKENS = re.compile(
    r'R"(?P<raw>[^(\s]*)\((?:.|\n)*?\)(?P=raw)"|//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'')


def parser(text):
    result = argparse.ArgumentParser(description=text)
    result.add_argument("--root", type=pathlib.Path, required=True)
    return result


def files(root, folders=FOLDERS, suffixes=SUFFIXES):
    return sorted(
        path for folder in folders for path in (root / folder).rglob("*")
        if path.suffix in suffixes and path.is_file())


def code(text, literals=False):
    """The text with comments (and, unless asked for, literals) blanked; lines keep their numbers."""

    def blank(match):
        if literals and not match[0].startswith(("//", "/*")):
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return TOKENS.sub(blank, text)


def finish(complaints, seen, what):
    """Ends the check. Having looked at nothing is a failure too."""
    for complaint in complaints:
        print(complaint)
    if not seen:
        sys.exit(f"{what}: no files were found")
    if complaints:
        sys.exit(f"{what}: {len(complaints)} complaints in {seen} files")
    print(f"{what}: {seen} files hold")
