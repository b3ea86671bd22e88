"""Every citation resolves: sections of the normative texts, documents, files of the repository, codes of rules."""
import re

import source

# A normative text and its sections: "## 2. Ops", "### 2.6 Attention". Rules of section 0 are cited as 0.5.
HEADING = re.compile(r"^#{2,4} (\d+(?:\.\d+)*)\b", re.MULTILINE)
NUMBERED = ("docs/arithmetic.md", "docs/scenario-reference.md")
OLD = re.compile(r"(?<![\w/-])(?:scenario|contract)\.md\b")
SECTION = re.compile(
    r"(?P<file>arithmetic|scenario-reference)\.md\)?`?,?(?:\s+(?://\s*)?)(?:sections?\s+)?(?P<numbers>\d+(?:\.\d+)*(?:(?:,| and)\s+\d+(?:\.\d+)*)*)\b(?![\w-])")
DOCUMENT = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.md\b")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)]*)?\)")
FOLDERS = "kernels|scenarios|engine|oracle|harness|tests|ci|cmake"
PATH = re.compile(rf"(?<![\w/.<-])(?:{FOLDERS})/[\w./-]*\.(?:cpp|cu|cuh|h|py|sh|cmake|yaml|txt|md)\b(?![*{{])")
# A capital name stands for any: kernels/ops/OP.h.
ANY = re.compile(r"/[A-Z]+(_test)?\.")
RULE = re.compile(r"(?<![\w.#])[LY]\d\d(?!\w)")
RULE_ROW = re.compile(r"^\| ([LY]\d\d) \|", re.MULTILINE)
# The tests of these checks cite what is not there.
ARE_EXAMPLES = ("tests/style/",)
# Names that stand for any file, files that a test writes or misses on purpose, and a rule that is not one.
NOT_MEANT = {
    "tests/path_test.cpp", "tests/top/folder/name_test.cpp", "tests/top/folder/name_test.cu", "ci/none.sh",
    "engine/train/trainer_test.cpp", "scenarios/regressions/shrunk.yaml", "scenarios/regressions/activation-norm-out.yaml", "scenarios/regressions/activation-norm-out-2.yaml", "scenarios/a.yaml",
    "scenarios/regressions/a.yaml", "L57"
}


def sections_of(text):
    return set(HEADING.findall(text))


class Known:
    def __init__(self, sections, rules, exists):
        self.sections, self.rules, self.exists = sections, rules, exists


def complaints_of(name, text, known):
    """Complaints about one file; `name` is its path from the root."""

    def at(match, said):
        return f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()[:80]}: {said}"

    if name.startswith(ARE_EXAMPLES):
        return
    for match in OLD.finditer(text):
        yield at(match, "cite docs/scenario-reference.md or docs/cli.md")
    for match in SECTION.finditer(text):
        for number in re.findall(r"\d+(?:\.\d+)*", match["numbers"]):
            if number not in known.sections[f"docs/{match['file']}.md"]:
                yield at(match, f"there is no section {number}")
    for match in DOCUMENT.finditer(text):
        if not known.exists(match[0]):
            yield at(match, "there is no such document")
    for match in PATH.finditer(text):
        if match[0] not in NOT_MEANT and not ANY.search(match[0]) and not known.exists(match[0]):
            yield at(match, "there is no such file")
    for match in RULE.finditer(text):
        if match[0] not in known.rules | NOT_MEANT:
            yield at(match, "there is no such rule")
    if name.endswith(".md"):
        folder = name.rpartition("/")[0]
        for match in LINK.finditer(text):
            target = "/".join(filter(None, [folder, match[1]]))
            if not known.exists(target):
                yield at(match, "the link leads nowhere")


def test_itself():
    known = Known({"docs/arithmetic.md": {"2", "2.6"}, "docs/scenario-reference.md": {"4"}}, {"L07"},
                  lambda path: path in ("docs/a.md", "engine/a.h", "docs/arithmetic.md", "docs/scenario-reference.md"))
    for bad in ("arithmetic.md 2.7", "arithmetic.md, section 3", "see scenario.md", "contract.md", "docs/b.md", "engine/b.h",
                "L08", "[x](b.md)", "arithmetic.md 2.6 and 2.9", "docs/scenario-reference.md, section 5"):
        assert list(complaints_of("docs/x.md", bad, known)), bad
    for good in ("arithmetic.md 2.6", "arithmetic.md, section 2", "docs/a.md", "engine/a.h", "L07", "[x](a.md)", "arithmetic.md",
                 "[x](https://x.y/b.md)", "engine/OP_test.cpp", "docs/scenario-reference.md, section 4", "build/engine/b.h"):
        assert not list(complaints_of("docs/x.md", good, known)), (good, list(complaints_of("docs/x.md", good, known)))
    assert sections_of("## 2. Ops\n### 2.6 Attention\n") == {"2", "2.6"}


def main():
    test_itself()
    root = source.parser(__doc__).parse_args().root
    files = source.files(root) + source.files(root, suffixes=(".py", ".sh", ".txt", ".cmake", ".md"))
    files += [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "cmake").glob("*.cmake")),
              *sorted((root / "ci").glob("*.sh"))]
    sections = {name: sections_of((root / name).read_text()) for name in NUMBERED}
    arithmetic = (root / NUMBERED[0]).read_text()
    ground = arithmetic[arithmetic.index("## 0. Ground rules"):arithmetic.index("### 0.1")]
    sections[NUMBERED[0]] |= {f"0.{number}" for number in re.findall(r"^(\d+)\. ", ground, re.MULTILINE)}
    rules = set(RULE_ROW.findall((root / NUMBERED[1]).read_text()))
    known = Known(sections, rules, lambda path: (root / path).exists())
    complaints = []
    for path in sorted(set(files)):
        complaints += complaints_of(str(path.relative_to(root)), path.read_text(), known)
    if len(rules) != 8 + 57:
        complaints.append(f"{NUMBERED[1]}: {len(rules)} rules, not Y01..Y08 and L00..L56")
    source.finish(complaints, len(files), "citations")


if __name__ == "__main__":
    main()
