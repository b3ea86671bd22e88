"""The pages of each command that writes one: well formed, escaped, whole in themselves. --browser: in a browser, which is
skipped where there is none: the script runs under the page's own policy, and nothing is asked of anybody."""
import argparse
import base64
import hashlib
import html.parser
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

SKIPPED = 77
PATIENCE = int(os.environ.get("LOCKSTEP_TEST_PATIENCE", "1"))  # tests/support/patience.h
VOID = {"meta", "input", "br"}
ELSEWHERE = ("src", "srcset", "action", "data", "poster", "background", "xlink:href", "ping")
EVIL = "<script>alert(1)</script>\"'&"


class Reader(html.parser.HTMLParser):
    """Complains about what no page may have, and keeps what tests look for."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.complaints, self.ids, self.links, self.scripts = [], [], [], [], []
        self.count, self.policy, self.rows = {}, "", 0
        self.feed(text)
        self.close()
        if self.open:
            self.complaints.append(f"not closed: {self.open}")
        self.complaints += [f"id {one} twice" for one in self.ids if self.ids.count(one) > 1]
        self.complaints += [f"link to {one}, which is not here" for one in self.links if one[1:] not in self.ids]

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        for name, value in attributes:
            if name.startswith("on") or name in ELSEWHERE or (name == "href" and not value.startswith("#")):
                self.complaints.append(f"<{tag} {name}={value}>")
        for style in named.get("class", "").split():
            self.count[f"{tag}.{style}"] = self.count.get(f"{tag}.{style}", 0) + 1
        self.count[tag] = self.count.get(tag, 0) + 1
        if "id" in named:
            self.ids.append(named["id"])
        if tag == "a":
            self.links.append(named["href"])
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"]
        self.rows += tag == "tr" and "data-verdict" in named
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.complaints.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def complaints_of(text):
    """What is wrong with a page, and its reader."""
    page = Reader(text)
    found = list(page.complaints)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in page.scripts]
    if not page.policy.startswith("default-src 'none'"):
        found.append(f"policy: {page.policy}")
    if re.findall(r"'sha256-([^']*)'", page.policy) != digests:
        found.append(f"the policy does not name the script's digest, sha256-{digests}")
    for word in ("unsafe-eval", "http:", "https:", "*"):
        if word in page.policy:
            found.append(f"the policy allows {word}")
    if not text.startswith("<!DOCTYPE html>") or not text.endswith("</html>\n"):
        found.append("no whole page")
    return found, page


def test_itself():
    head = "<!DOCTYPE html>\n<html><head></head>"
    for wrong in ("<img src=x>", "<p onclick=x>a</p>", "<p>a", "<a href=\"#x\">a</a>", "<script>alert(1)</script>",
                  "<a href=\"http://x\">a</a>", "<i id=a></i><i id=a></i>"):
        found, _ = complaints_of(head + wrong + "</html>\n")
        plain, _ = complaints_of(head + "</html>\n")
        assert len(found) > len(plain), wrong


def write(path, name, more=""):
    quoted = name.replace("'", "''")
    path.write_text(f"schema: 1\nname: plain\ndescription: '{quoted}'\nnumerics: [fp32]\n{more}")
    return path


class Pages:
    def __init__(self, lockstep, folder):
        self.lockstep, self.folder, self.failures, self.pages = lockstep, folder, [], {}

    def run(self, name, statuses, *words):
        out = self.folder / f"{name}.html"
        ran = subprocess.run([self.lockstep, *map(str, words), "--html", str(out)], capture_output=True, text=True, cwd=self.folder,
                             timeout=300 * PATIENCE)
        if ran.returncode not in statuses:
            self.failures.append(f"{name}: exit status {ran.returncode}: {ran.stderr}")
            return ""
        text = out.read_text()
        found, page = complaints_of(text)
        self.failures += [f"{name}: {one}" for one in found]
        for fact in ("date", "host", "command", "build"):
            if f"<dt>{fact}</dt>" not in text:
                self.failures.append(f"{name}: no {fact}")
        self.pages[name] = page
        return text

    def expect(self, name, holds, what):
        if not holds:
            self.failures.append(f"{name}: {what}")

    def count(self, name, key):
        return self.pages[name].count.get(key, 0) if name in self.pages else 0


def check_judges(pages):
    folder = pages.folder
    plain = write(folder / "<script>alert(1)<&'.yaml", EVIL)
    sim = ("--device", "sim", "--quiet")
    pages.run("held", (0,), "verify", *sim, plain, "--json", folder / "old.json")
    text = pages.run("hazard", (1,), "verify", *sim, "--plant", "compute-ignores-loaded-event", plain, "--against", folder / "old.json")
    pages.expect("hazard", pages.count("hazard", "svg.hazard") >= 1, "no hazard is drawn")
    for part in ("rect.earlier", "rect.later", "line.missing", "rect.both"):
        pages.expect("hazard", pages.count("hazard", part) >= 1, f"no {part}")
    reason = re.search(r'<p class="reason">([^<]*)<', text)
    pages.expect("hazard", reason and text.count(reason[1]) == 1, "the reason stands there more than once")
    pages.expect("hazard", "Newly failing" in text and "&lt;script&gt;" in text, "no difference, or nothing escaped")
    pages.run("difference", (1,), "replay", *sim, "--plant", "rms-norm-forgets-eps", plain)
    pages.expect("difference", pages.count("difference", "svg.pack") == 1, "the packs are not drawn")
    pages.run("campaign", (1,), "fuzz", *sim, "--seed", 3, "--count", 8, "--jobs", 1, "--reruns", 1, "--plant", "rms-norm-forgets-eps")
    pages.expect("campaign", pages.count("campaign", "article") >= 1, "no card")
    report = folder / "night.json"
    pages.run("night", (1,), "fuzz", *sim, "--seed", 4, "--count", 6, "--jobs", 1, "--reruns", 1, "--plant", "rms-norm-forgets-eps", "--json", report)
    text = pages.run("nights", (0,), "fuzz", "--nights", report)
    pages.expect("nights", "lockstep replay ls" in text and "--plant rms-norm-forgets-eps" in text, "no line that runs a case again")
    pages.run("several", (0, 1), "verify", *sim, "-k", "offload", "--shard", "0/3", "--jobs", 1)
    pages.expect("several", pages.pages["several"].rows > 20 and pages.count("several", "div.filter") == 1, "no filter over its rows")


def check_measures(pages):
    folder = pages.folder
    graphs = write(folder / "graphs.yaml", EVIL, "data: {documents: [[[20, 0, 30], [1, 2, 3, 4]], [[64], [16, 15, 17]]]}\n"
                   "training: {steps: 4}\ncuda_graph: {max_packed_seqs: 3}\n")
    pages.run("packing", (0,), "plan-packing", "--device", "sim", "--budget", "0.05", graphs)
    pages.expect("packing", pages.count("packing", "svg.chart") >= 1 and pages.count("packing", "path.curve") >= 2, "no curves")
    pages.expect("packing", pages.count("packing", "rect.column") >= 2, "no histogram")
    offload = write(folder / "offload.yaml", EVIL, "offload: {modules: [core_attn], fraction: 0.5}\n")
    pages.run("bench", (0,), "bench", "--device", "sim", "--budget", "0.02", "--section", "offload", offload)
    pages.expect("bench", pages.count("bench", "svg.chart") >= 2, "no charts of time and memory")
    sharded = write(folder / "sharded.yaml", EVIL, "fsdp: {strategy: optim_grads_params}\nparallel: {data: 2}\n"
                    "offload: {modules: [core_attn], fraction: 0.5}\n")
    pages.run("exchanges", (0,), "describe", sharded)
    pages.expect("exchanges", pages.count("exchanges", "rect.exchange") >= 2, "no exchanges in the timeline")
    pages.run("refused", (2,), "describe", write(folder / "refused.yaml", EVIL, "numerics: [fp7]\n"))
    text = pages.run("describe", (0,), "describe", offload)
    pages.expect("describe", pages.count("describe", "svg.timeline") == 1 and pages.count("describe", "rect.copy") >= 2,
                 "no timeline with copies")
    pages.expect("describe", "&lt;script&gt;" in text, "the description is not there, or not escaped")
    pages.run("mutate", (0,), "mutate", "--only", "rms-norm-forgets-eps", "--jobs", 1, "--quiet")
    pages.expect("mutate", pages.pages["mutate"].rows == 1, "no row for the fault")
    pages.run("doctor", (0,), "doctor")


class Counting(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self):
        Counting.asked += 1
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


def dom(browser, page):
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--virtual-time-budget=4000",
             "--dump-dom", page.as_uri()]
    return subprocess.run(words, capture_output=True, text=True, timeout=120 * PATIENCE).stdout


def check_browser(lockstep, folder):
    browser = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if browser is None:
        print("no browser here (chromium, chromium-browser, google-chrome)")
        return SKIPPED
    failures = []
    page = folder / "page.html"
    plain = write(folder / "plain.yaml", EVIL)
    subprocess.run([lockstep, "verify", "--device", "sim", "--quiet", "--plant", "compute-ignores-loaded-event", plain, plain,
                    "--html", page], capture_output=True, timeout=120 * PATIENCE)
    text = page.read_text()
    shown = dom(browser, page)
    if shown.count('<button type="button" class="copy"') != text.count('<pre class="copy"'):
        failures.append("not each command has its button")
    if "<output>2 of 2 rows</output>" not in shown:
        failures.append("the filter does not count its rows")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    requests = (f'<img src="{url}a"><link rel="stylesheet" href="{url}b"><iframe src="{url}c"></iframe>'
                f'<style>body {{ background: url({url}d) }}</style><script>fetch("{url}e"); document.title = "ran"</script>')
    asks = folder / "asks.html"
    for policy in (True, False):  # Without the policy each of these is a request, or this test could not fail.
        attacked = text.replace("</main>", requests + "</main>")
        if not policy:
            attacked = attacked.replace("Content-Security-Policy", "x-none")
        asks.write_text(attacked)
        Counting.asked = 0
        ran = "<title>ran" in dom(browser, asks)
        if policy and (Counting.asked > 0 or ran):
            failures.append(f"{Counting.asked} requests under the policy; a foreign script ran: {ran}")
        if not policy and (Counting.asked < 4 or not ran):
            failures.append(f"only {Counting.asked} requests without the policy: this test sees none")
    server.shutdown()
    print("\n".join(failures) or f"ok: {browser}")
    return 1 if failures else 0


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--lockstep", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    options.add_argument("--browser", action="store_true")
    options = options.parse_args()
    test_itself()
    with tempfile.TemporaryDirectory() as folder:
        if options.browser:
            return check_browser(options.lockstep, pathlib.Path(folder))
        pages = Pages(options.lockstep, pathlib.Path(folder))
        check_judges(pages)
        check_measures(pages)
        print("\n".join(pages.failures) or f"ok: {len(pages.pages)} pages")
        return 1 if pages.failures else 0


if __name__ == "__main__":
    sys.exit(main())
