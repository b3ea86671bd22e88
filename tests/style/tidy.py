"""Bans what reviewers tire of, and names what to write instead."""
import re

import source

HERE = ("kernels/", "scenarios/", "engine/", "oracle/", "harness/")
RESULTS = ("kernels/", "engine/", "oracle/", "harness/")
EVERYWHERE = HERE + ("tests/",)

RAW = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"')  # A raw string: other formats have other lines.


class Ban:
    """`pattern` in code under `folders`, but for files whose name matches `allowed`. `example` is a line that the ban must catch, `fine` one that it must not."""

    def __init__(self, pattern, instead, example, fine="", folders=EVERYWHERE, where="code", allowed="$"):
        self.pattern = re.compile(pattern, re.MULTILINE)
        self.instead, self.example, self.fine = instead, example, fine
        self.folders, self.where, self.allowed = folders, where, allowed

    def complaints(self, name, text, code):
        if not name.startswith(self.folders) or re.fullmatch(self.allowed, name):
            return
        looked_at = {"code": code, "text": text}.get(self.where) or RAW.sub("", text)
        for match in self.pattern.finditer(looked_at):
            line = looked_at.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: `{match[0].strip()[:60]}`: {self.instead}"


BANS = [
    Ban(r"\bcudaDeviceSynchronize\b", "synchronise the stream or event that is meant", "cudaDeviceSynchronize();"),
    Ban(r"\bcudaStreamDefault\b|\bcudaStreamLegacy\b|\bcudaStreamPerThread\b", "use a stream of your own", "f(cudaStreamLegacy);"),
    Ban(r"<<<(?![^>]*,[^>]*,[^>]*,)[^;{]*?>>>", "name the stream: <<<grid, block, shared, stream>>>", "k<<<g, b>>>(x);", "k<<<g, b, 0, s>>>(x);"),
    Ban(r"<<<[^;]*,\s*(0|nullptr)\s*>>>", "use a stream of your own", "k<<<g, b, 0, nullptr>>>(x);", "k<<<g, b, 0, s>>>(x);"),
    Ban(r"\bcudaMemcpy(ToSymbol|FromSymbol|2D)?\s*\(|\bcudaMemset\s*\(", "use the Async form on a stream", "cudaMemcpy(a, b, 1, k);", "cudaMemcpyAsync(a);"),
    Ban(r"\bunordered_(multi)?(map|set)\b", "use map, set or a sorted vector: equal inputs, equal order", "std::unordered_map<int, int> m;", folders=RESULTS, allowed=r"kernels/cuda/attention/cudnn_(plans|library)\.cpp"),  # Their library asks for one.
    Ban(r"\bs?rand\s*\(|\brandom_device\b", "draw from Philox or from the harness's choices, by seed", "int x = std::rand();", "operand(x);"),
    Ban(r"\bstd::(uniform|normal|bernoulli)\w*_distribution\b", "libraries differ in these: take the engine's integers", "std::uniform_int_distribution<int> d;"),
    Ban(r"(?<![\w.>])(std::)?time\s*\(\s*(0|NULL|nullptr|&|\))|\bsystem_clock\b", "results know no wall clock; for durations use steady_clock", "x = time(0);", "runtime(0);"),
    Ban(r"\bf(max|min)f?\s*\(", "use the contract's max and min: NaN and -0 are defined there", "x = fmaxf(a, b);", "std::max(a, b);", folders=HERE),
    Ban(r"(?<![\w.:>])(__)?(expf|logf|sinf|cosf|tanhf|powf|rsqrtf|sqrtf)\s*\(|\bstd::(exp|log|sin|cos|tanh|pow|erf)f?\s*\(",
        "use the contract's functions (arithmetic contract 0.2)", "y = std::exp(x);", "y = exp(x);", folders=("kernels/", "engine/")),
    Ban(r"\batomicAdd\s*\(\s*\(?float", "no float atomics: fixed trees", "atomicAdd((float*)p, x);"),
    Ban(r"\bassert\s*\(", "use require(cond, what): contracts are on in every build", "assert(x);", "static_assert(x);", folders=HERE),
    Ban(r"\bGTEST_SKIP\b", "a test that skips itself passes; label it gpu instead", "GTEST_SKIP();"),
    Ban(r"\breturn;", "return whether the case was judged, and give for_cases the least number", "if (x) return;",
        "return false;", folders=("tests/kernels/ops/", "tests/kernels/moe/"), allowed=r".*\.h"),
    Ban(r"\b(EXPECT|ASSERT)_TRUE\s*\(\s*true\s*\)|\bSUCCEED\s*\(", "a test must be able to fail", "EXPECT_TRUE(true);"),
    Ban(r"^using namespace (?!std::(string|chrono)_?literals)", "write the names, or import one by one", "using namespace std;"),
    Ban(r"#pragma (GCC|clang) optimize|__attribute__\(\(optimize", "flags belong to CMake", "#pragma GCC optimize"),
    Ban(r"\t", "indent by spaces", "\tint x;", where="text"),
    Ban(r"[ \t]+$", "no blanks at the end of a line", "int x; ", where="text"),
    Ban(r"\b(TODO|FIXME|XXX|HACK)\b", "do it, or write the debt into docs/known-limitations.md", "// TODO: more", where="text"),
    Ban(r"^.{101,}$", "at most 100 columns", "x" * 101, "x" * 100, where="lines"),
]
# Looked for in what CMake reads.
FLAGS = re.compile(r"-ffast-math|-Ofast|-funsafe-math|use_fast_math|ffp-contract=(fast|on)|--?fmad=true")
HEADER_ONCE = "a header starts with #pragma once, after its comment: write it there"
LONGEST = 650
POINT = re.compile(r"\bfaulty(?:<[^<>]*>)?\(")
# A condition, the header of a loop, or what stands before a question mark.
DECIDES = re.compile(r"\b(if|while|for|switch)\s*\(.*\bfaulty\b|\bfaulty(<[^<>]*>)?\([^()]*(\([^()]*\)[^()]*)*\)\s*\?")
POINTS_OF_A_FUNCTION = 2
WITHOUT_FAULT = ("kernels/", "engine/")  # Folders where every fault point has that form.
SNAKE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
# Words that may stand before a name in a definition or declaration at the start of a line.
FUNCTION = re.compile(
    r"^(?:(?:static|inline|constexpr|extern|virtual|explicit|template <[^>]*>|\[\[\w+\]\]) )*"
    r"(?:(?:const )?(?:unsigned |std::)?\w+(?:::\w+)*(?:<[^;=(){}]*>)?[ &*]+)(?P<name>[a-zA-Z]\w*)\((?!\*)", re.MULTILINE)
NOT_OURS = re.compile(r"^(TEST\w*|RC_\w+|INSTANTIATE_\w+|SetUp\w*|TearDown\w*|MATCHER\w*|On[A-Z]\w*|showValue)$")
KEYWORDS = {"return", "else", "new", "delete", "throw", "case", "using", "typedef", "goto", "co_return", "co_yield", "co_await"}


def name_complaints(name, code):
    """Functions at namespace level and file names are snake_case."""
    stem = name.rsplit("/", 1)[1].split(".")[0]
    if not SNAKE.fullmatch(stem):
        yield f"{name}: file names are snake_case: rename the file"
    for match in FUNCTION.finditer(code):
        if match[0].split()[0] in KEYWORDS or NOT_OURS.match(match["name"]) or match["name"].isupper():
            continue
        if not SNAKE.fullmatch(match["name"].rstrip("_")):
            line = code.count("\n", 0, match.start("name")) + 1
            yield f"{name}:{line}: {match['name']}: functions are snake_case"


def flag_complaints(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        match = FLAGS.search(line.split("#")[0])
        if match:
            yield f"{name}:{number}: {match[0]}: take it out, since arithmetic contract 0.3 forbids it"


def blocks(code):
    """(begin, end) of each function, or of what holds a value at the level of a type: the outermost braces that are neither a namespace's nor a type's."""
    opened, start = [], 0
    for match in re.finditer(r"[{};]", code):
        if match[0] == "{":
            before = code[start : match.start()]
            outer = re.search(r"\bnamespace\b|\bextern \"", before) or re.search(r"\b(struct|class|union|enum)\b[^()]*$", before)
            opened.append((bool(outer), match.start()))
        elif match[0] == "}" and opened:
            is_outer, begin = opened.pop()
            if not is_outer and all(outer for outer, _ in opened):
                yield begin, match.end()
        start = match.end()


def fault_complaints(name, text):
    """A fault point of product code is a value on one line: `faulty("name", right, wrong)`, twice a function at most."""
    if not name.startswith(("kernels/", "engine/")) or name == "kernels/core/fault.h":
        return
    code = source.code(text, literals=True)
    for number, line in enumerate(code.splitlines(), 1):
        if name.startswith(WITHOUT_FAULT) and re.search(r"\bfault\(\"", line):
            yield f"{name}:{number}: a fault point is a value: faulty(\"name\", right, wrong)"
        if len(POINT.findall(line)) > 1:
            yield f"{name}:{number}: one fault point a line"
        if POINT.search(line) and DECIDES.search(line):
            yield f"{name}:{number}: a fault point selects a value and decides nothing: give it a name on a line of its own"
    for begin, end in blocks(code):
        count = len(POINT.findall(code[begin:end]))
        if count > POINTS_OF_A_FUNCTION:
            line = code.count("\n", 0, begin) + 1
            yield f"{name}:{line}: {count} fault points in one function; at most {POINTS_OF_A_FUNCTION}: split it"


def complaints_of(name, text):
    code = source.code(text)
    yield from fault_complaints(name, text)
    for ban in BANS:
        yield from ban.complaints(name, text, code)
    if name.endswith((".h", ".cuh")) and not code.lstrip().startswith("#pragma once"):
        yield f"{name}: {HEADER_ONCE}"
    lines = text.count("\n")
    if lines > LONGEST:
        yield f"{name}: {lines} lines, at most {LONGEST}: find the second concept in it, and give that a file of its own"
    if text and not text.endswith("\n"):
        yield f"{name}: ends without a line end: add one"
    yield from name_complaints(name, code)


def unbuilt(tests, lists):
    """Files of tests, named from tests/, that no CMakeLists.txt names: they are not built, and nothing fails."""
    named = set(re.findall(r"[\w/]+", lists))
    return [name for name in tests if name.removesuffix("_test.cpp") not in named]


def test_itself():
    for ban in BANS:
        name = ban.folders[0] + "a.cpp"
        for line, want in ((ban.example, True), (ban.fine, False)):
            caught = list(ban.complaints(name, line, source.code(line)))
            assert bool(caught) == want, (ban.pattern.pattern, line, caught)
    assert unbuilt(["a/b_test.cpp", "a/c_test.cpp"], "lockstep_test(a/b LABELS host)") == ["a/c_test.cpp"]
    assert not list(complaints_of("engine/a.cpp", '// cudaDeviceSynchronize\nconst char* x = "rand()";\n'))
    assert list(complaints_of("engine/Bad.cpp", "int x;\n"))
    assert list(complaints_of("engine/a.cpp", "void DoIt(int x) {\n}\n"))
    assert not list(complaints_of("engine/a.cpp", "void do_it(int x) {\n}\nreturn Thing(x);\nScenario scenario(int x);\n"))
    assert list(complaints_of("engine/a.h", "int x;\n"))
    assert list(flag_complaints("a.cmake", "add(-ffast-math)\n")) and not list(flag_complaints("a.cmake", "# -ffast-math\n"))
    assert list(complaints_of("engine/a.cpp", "int x;\n" * (LONGEST + 1)))
    point = '  const int x = faulty("a", 1, f(2));\n'
    assert not list(complaints_of("engine/a.cpp", "void f() {\n" + 2 * point + "}\nvoid g() {\n" + point + "}\n"))
    for wrong in (3 * point, '  if (faulty("a", true, false)) return;\n', "  f(1);" + 2 * point.strip() + "\n",
                  '  x = faulty("a", g(), false) ? 1 : 2;\n', '  for (int i = 0; i < faulty("a", 1, 2); ++i) f(i);\n'):
        assert list(complaints_of("engine/a.cpp", "namespace n {\nvoid f() {\n" + wrong + "}\n}\n")), wrong
    assert list(complaints_of("kernels/a.cpp", 'bool f() {\n  return fault("a");\n}\n'))


def main():
    test_itself()
    root = source.parser(__doc__).parse_args().root
    files = source.files(root)
    complaints = []
    for path in files:
        complaints += complaints_of(str(path.relative_to(root)), path.read_text())
    builds = [root / "CMakeLists.txt", root / "CMakePresets.json", *(root / "cmake").glob("*.cmake")]
    builds += source.files(root, suffixes=(".txt", ".cmake"))
    for path in builds:
        complaints += flag_complaints(str(path.relative_to(root)), path.read_text())
    tests = [str(path.relative_to(root / "tests")) for path in files if path.name.endswith("_test.cpp")]
    lists = "".join(path.read_text() for path in source.files(root, suffixes=(".txt",)) if path.name == "CMakeLists.txt")
    complaints += [f"tests/{name}: no CMakeLists.txt has a lockstep_test of it: add its line to the one of its folder" for name in unbuilt(tests, lists)]
    source.finish(complaints, len(files), "tidy")


if __name__ == "__main__":
    main()
