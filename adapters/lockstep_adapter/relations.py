"""The relations of docs/engine-protocol.md, section 13, in Python: an engine is compared with itself, without lockstep.

lockstep draws scenarios, shrinks and replays; this module judges the few scenarios that it is given. R16 is not here: it needs
lockstep's own model in binary64."""
import array
import itertools
import math
import random
import shutil

from .documents import changed
from .feed import slots_in_use
from .tensors import digest, read_file
from .wire import key_of
from .world import EngineFailure, World

UNWATCHED_RUNS = 3
MOST_OF_A_DUMP = 256
ROUNDING, LEAST = 64 * 2.0**-24, 2.0**-130  # R16b: of the largest term; below the least normal number nothing is exact.
LOSS_ROUNDING = 1e-4
# R16c: parts of a weight's length by which it moves, and what may be wrong of the change of the loss.
STEPS, SMALL_WITH_SCANS, TOLERANCE, STRAIGHT = [2.0**-n for n in (8, 11, 14, 17, 20)], 2.0**-14, 0.05, 0.02
LEAST_OVER_ROUNDING, LOSS_UNITS, LEAST_OF_A_NORM = 50, 2.0**-20, 8
OF_A_MICROBATCH = ("token_loss", "activation", "activation_gradient")


class NotApplicable(Exception):
    """The relation says nothing about this scenario and engine."""


class Violated(Exception):
    def __init__(self, judge, reason):
        super().__init__(f"{judge}: {reason}")
        self.judge = judge


class Result:
    """What a run said: entries by identity in program order, counters and rows by rank."""

    def __init__(self, replies, by_whole_tensor):
        self.entries, self.counters, self.rows = {}, [reply["counters"] for reply in replies], {}
        self._whole = by_whole_tensor
        for rank, reply in enumerate(replies):
            for entry in reply["rows"]:
                place = entry.get("phase", "training"), entry["step"], entry["microbatch"] * len(replies) + rank
                self.rows[place] = entry["documents"]
            for entry in reply["tensors"]:
                self._add(entry, rank, len(replies))

    def _add(self, entry, rank, ranks):
        microbatch = entry["microbatch"] * ranks + rank if entry["kind"] in OF_A_MICROBATCH else None
        key = entry["kind"], entry.get("phase", "training"), entry["step"], microbatch, entry["name"]
        if microbatch is None and key in self.entries:
            if self.entries[key]["sha256"] != entry["sha256"]:
                raise Violated("ranks", f"{key} differs between ranks")
        elif key in self.entries:
            raise EngineFailure("protocol", f"{key} occurs twice")
        self.entries[key] = entry

    def bits(self, key, document=None, whole=True):
        """What must be equal of a tensor; `whole`: rows of no document too, where the engine defines them."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        if document is not None:
            return entry["by_document"][document]
        parts = entry.get("by_document")
        whole = entry["sha256"] if parts is None or (whole and self._whole) else None
        return entry["dtype"], entry["shape"], whole, parts, entry["nan"]

    def counter(self, name):
        return sum(counters.get(name, 0) for counters in self.counters)

    def keys(self, *kinds, step=None, phase="training"):
        return [key for key in self.entries
                if (not kinds or key[0] in kinds) and step in (None, key[2]) and phase in (None, key[1])]

    def has_gradient(self):
        return any(self.entries[key]["nonzero"] for key in self.keys("gradient"))


def differences(a, b, keys=None, whole=True):
    keys = list(dict.fromkeys([*a.keys(phase=None), *b.keys(phase=None)])) if keys is None else keys
    return [key for key in keys if a.bits(key, whole=whole) != b.bits(key, whole=whole)]


class Judge:
    """One scenario, one feed, one engine. `judge("R7")` returns why a relation is not applicable, or None if it holds; it
    raises Violated or EngineFailure. `world`: one that is there already, for many cases; then R1 starts no fresh process."""

    def __init__(self, command, scenario, feed, deadline_s=60, world=None):
        self.command, self.scenario, self.feed, self.deadline_s = command, scenario, feed, deadline_s
        self.ranks, self._base, self.fresh = scenario["parallel"]["data"], None, world is None
        self.world = world or World(command, self.ranks)
        self.hello = self.world.hello
        try:
            refused = [item for reply in self.world.ask("check", 10, scenario=scenario) for item in reply.get("refused", [])]
            if refused:
                raise NotApplicable(f"refused: {refused}")
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.fresh:
            self.world.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def honours(self, key):
        return bool(self.hello["honours"].get(key))

    def claims(self, name):
        return self.hello.get("claims", {}).get(name, False)

    def run(self, scenario=None, feed=None, world=None, observe=None, **more):
        """One run, observed by all kinds or by those given."""
        observe = observe or self.hello["observes"]
        world, scenario, feed = world or self.world, scenario or self.scenario, feed or self.feed
        folder = feed.write(world.folder / f"feed-{next(world.numbers)}")
        replies = world.ask("run", self.deadline_s, scenario=scenario, feed=folder, observe=observe,
                            deadline_s=self.deadline_s, **more)
        shutil.rmtree(folder)
        for reply in replies:
            if "failed" in reply:
                raise Violated("failed", f"{reply['failed']}: {reply.get('what', '')} {reply.get('where', '')}")
            if "skipped" in reply:
                raise NotApplicable(reply["skipped"])
            if "counters" not in reply:
                raise EngineFailure("protocol", f"no counters: {str(reply)[:200]}")
        result = Result(replies, self.claims("padding_defined"))
        self._check(result, scenario, feed, observe)
        return result

    def base(self):
        if self._base is None:
            self._base = self.run()
        return self._base

    def __call__(self, relation):
        try:
            RELATIONS[relation][1](self)
        except NotApplicable as reason:
            return str(reason)
        return None

    def _check(self, result, scenario, feed, observe):
        """What every run must answer: rows that hold the documents, no NaN, all tensors."""
        packs = {(*key, g): pack for key, list_of_packs in feed.packs.items() for g, pack in enumerate(list_of_packs)}
        if set(result.rows) != set(packs):
            raise Violated("rows", f"microbatches {sorted(set(packs) ^ set(result.rows))} are missing or too many")
        for place, pack in packs.items():
            rows = result.rows[place]
            if [end - begin for begin, end in rows] != [len(document.tokens) for document in pack]:
                raise Violated("rows", f"{place}: {rows} are not the documents' lengths")
            used = sorted((begin, end) for begin, end in rows if end > begin)
            if used and (used[0][0] < 0 or used[-1][1] > scenario["data"]["pack_length"]) or any(
                    a[1] > b[0] for a, b in zip(used, used[1:])):
                raise Violated("rows", f"{place}: {rows} overlap or leave the pack")
            if "token_loss" in observe and ("token_loss", *place, "token_loss") not in result.entries:
                raise EngineFailure("protocol", f"no token_loss of {place}")
        for kind in {"gradient", "weight"} & set(observe) if self.claims("weights_by_name") else ():
            for step, name in itertools.product(range(feed.steps), feed.weights):
                if (kind, "training", step, None, name) not in result.entries:
                    raise EngineFailure("protocol", f"no {kind} of {name} in step {step}")
        nans = [key for key, entry in result.entries.items() if entry["nan"]]
        if nans:
            raise Violated("nan", f"{nans[0]} and {len(nans) - 1} others hold a NaN")

    def dump(self, feed, keys):
        """The tensors with these identities, from one more run; checked against its digests."""
        place = {key: (key[3] % self.ranks, key[3] // self.ranks) if key[0] in OF_A_MICROBATCH else (0, None) for key in keys}
        names = {key: key_of(key[0], key[4], *key[1:3], place[key][1]) for key in keys}
        number = next(self.world.numbers)
        folder, to = feed.write(self.world.folder / f"feed-{number}"), self.world.folder / f"dump-{number}"
        replies = self.world.ask("dump", self.deadline_s, scenario=self.scenario, feed=folder, observe=self.hello["observes"],
                                 deadline_s=self.deadline_s, tensors=sorted(set(names.values())), to=str(to))
        shutil.rmtree(folder)
        found = {}
        for rank, reply in enumerate(replies):
            file = to.with_name(to.name + (f".{rank}" if rank else ""))
            if not file.exists():
                continue
            tensors = read_file(file)
            file.unlink()
            entries = {key_of(e["kind"], e["name"], e.get("phase", "training"), e["step"], e.get("microbatch")): e for e in reply["tensors"]}
            for name, tensor in tensors.items():
                if digest(tensor.dtype, tensor.data) != entries[name]["sha256"]:
                    raise EngineFailure("protocol", f"{name} in the file is not what the reply says")
            found |= {key: tensors[name] for key, name in names.items() if place[key][0] == rank and name in tensors}
        if set(found) != set(keys):
            raise EngineFailure("protocol", f"not dumped: {set(keys) - set(found)}")
        return found

    def values(self, keys, feed=None):
        """Numbers by identity, of those that are fp32."""
        found = {}
        for first in range(0, len(keys), MOST_OF_A_DUMP):
            tensors = self.dump(feed or self.feed, keys[first : first + MOST_OF_A_DUMP])
            found |= {key: tensor.values() for key, tensor in tensors.items() if tensor.dtype == "F32"}
        return found

    # What the relations share.

    def expect_equal(self, relation, a, b, keys=None, whole=True):
        found = differences(a, b, keys, whole)
        if found:
            raise Violated(relation, f"{len(found)} tensors differ, first {found[0]}")

    def warm_up(self):
        return self.scenario["cuda_graph"]["warmup_steps"] if self.scenario["cuda_graph"]["impl"] != "none" else 0

    def halves(self):
        """For each half of the documents, whether (step, global microbatch, place) is in it: documents that have tokens are
        counted in each pack, and those with an even number are one half, those with an odd number the other."""
        numbers = {}
        for (_, step), packs in self.feed.packs.items():
            for g, pack in enumerate(packs):
                filled = [place for place, document in enumerate(pack) if document.tokens]
                numbers |= {(step, g, place): number % 2 for number, place in enumerate(filled)}
        if 1 not in numbers.values():
            raise NotApplicable("no pack has two documents")
        return [lambda *at, half=half: numbers.get(at) == half for half in (0, 1)]

    def no_router_losses(self):
        if "E" in self.scenario["model"]["pattern"]:
            raise NotApplicable("experts see all rows")

    def in_fp8(self, recipe):
        return "fp8" in self.scenario["numerics"] and self.scenario.get("fp8", {}).get("recipe", "current") == recipe

    def no_shared_scales(self):
        if self.in_fp8("current") or self.in_fp8("delayed"):
            raise NotApplicable("in fp8 all documents of a pack make its scales")

    def no_scales_of_earlier_steps(self):
        if self.in_fp8("delayed"):
            raise NotApplicable("scales of fp8 are those of earlier steps")

    def without(self, section, **keys):
        return changed(self.scenario, **{f"{section}.{key}": value for key, value in keys.items()})


def repeat(judge):
    again = judge.run()
    if judge.claims("deterministic"):
        judge.expect_equal("R1", judge.base(), again)
        if judge.base().counters != again.counters:
            raise Violated("R1", f"counters differ: {judge.base().counters}, {again.counters}")
        # An engine that is asked for tensors of a microbatch may have to wait for its device, and so hide a race.
        unwatched = [kind for kind in judge.hello["observes"] if kind not in OF_A_MICROBATCH]
        for _ in range(UNWATCHED_RUNS if unwatched else 0):
            other = judge.run(observe=unwatched)
            judge.expect_equal("R1", judge.base(), other, judge.base().keys(*unwatched))
        if judge.fresh:
            with World(judge.command, judge.ranks) as fresh:
                judge.expect_equal("R1", judge.base(), judge.run(world=fresh))
    if not judge.base().has_gradient():
        raise NotApplicable("every gradient is zero")


def graphs(judge):
    if judge.scenario["cuda_graph"]["impl"] == "none":
        raise NotApplicable("no graphs")
    if not graph_fit(judge)[1][1]:
        raise NotApplicable("no microbatch after warm-up fits a graph")
    off = judge.run(judge.without("cuda_graph", impl="none", modules=[]))
    judge.expect_equal("R2", judge.base(), off)
    if not judge.base().counter("graph_replays") and not graph_fit(judge)[1][0]:
        raise NotApplicable("all ranks fell back where one did")
    if not judge.base().counter("graph_replays") or off.counter("graph_replays"):
        raise Violated("vacuous", f"graph_replays {judge.base().counter('graph_replays')}, off {off.counter('graph_replays')}")


def offload(judge):
    if not judge.scenario["offload"]["modules"]:
        raise NotApplicable("no offload")
    off = judge.run(judge.without("offload", modules=[]))
    judge.expect_equal("R3", judge.base(), off)
    if off.counter("bytes_offloaded"):
        raise Violated("vacuous", "bytes are offloaded where nothing was asked for")
    if not judge.base().counter("bytes_offloaded"):
        raise NotApplicable("nothing was offloaded")


def recompute(judge):
    if not judge.scenario["model"]["recompute"] or not judge.claims("recompute_exact"):
        raise NotApplicable("no recomputation, or not claimed to be exact")
    off = judge.run(judge.without("model", recompute=[]))
    judge.expect_equal("R4", judge.base(), off, [key for key in judge.base().keys() if "activation" not in key[0]])


def sharding_of(judge, feed):
    asked, none = judge.run(feed=feed), judge.run(judge.without("fsdp", strategy="no_shard"), feed)
    judge.expect_equal("R5", asked, none)
    return asked


def sharding(judge):
    if judge.scenario["fsdp"]["strategy"] == "no_shard":
        raise NotApplicable("nothing is sharded")
    if judge.ranks & (judge.ranks - 1):
        raise NotApplicable("the number of ranks is no power of two")
    speaks = [judge.feed.voice(lambda _, g, __, r=r: g % judge.ranks == r) for r in range(min(judge.ranks, 4))]
    results = [sharding_of(judge, feed) for feed in (speaks if judge.ranks > 1 else [judge.feed])]
    if not all(result.has_gradient() for result in results):
        raise NotApplicable("a rank has no target")
    if judge.ranks > 1 and not differences(results[0], results[1], results[0].keys("gradient")):
        raise Violated("vacuous", "the gradients do not depend on which rank has targets")


def sharding_all(judge):
    microbatches = max(len(packs) for packs in judge.feed.packs.values()) // judge.ranks
    if judge.scenario["fsdp"]["strategy"] == "no_shard" or judge.ranks > 2 or microbatches > 1 < judge.ranks:
        raise NotApplicable("not sharded, over two ranks, or several microbatches")
    sharding_of(judge, judge.feed)


def neighbours(judge):
    judge.no_router_losses()
    judge.no_shared_scales()
    halves, a, done = judge.halves(), judge.run(feed=judge.feed.frozen()), False
    for half in halves:
        replaced = judge.feed.frozen().replaced(half)
        if replaced.targets() == judge.feed.targets():
            continue  # The others have no target: no loss would tell that they were replaced.
        b, done = judge.run(feed=replaced), True
        for key in a.keys(*OF_A_MICROBATCH):
            for place in range(len(a.entries[key].get("by_document", ()))):
                if half(key[2], key[3], place) and a.bits(key, place) != b.bits(key, place):
                    raise Violated("R6", f"{key} of document {place} depends on its neighbours")
        if not differences(a, b, a.keys("token_loss")):
            raise Violated("vacuous", "the others' losses did not change")
    if not done:
        raise NotApplicable("the neighbours of each half have no target")


def one_voice_document(judge):
    judge.no_router_losses()
    judge.no_shared_scales()
    heard = False
    for half in judge.halves():
        voice = judge.feed.frozen().voice(half)
        a, b = judge.run(feed=voice), judge.run(feed=voice.replaced(half))
        judge.expect_equal("R7", a, b, a.keys("gradient", "token_loss"))
        heard = heard or a.has_gradient()
    if not heard:
        raise NotApplicable("no document has a target")


def padding(judge):
    variants = []
    if judge.honours("feed.padding_token"):
        variants.append((judge.scenario, judge.feed.edited(padding_token=judge.feed.vocab - 1)))
    capacity = judge.scenario["cuda_graph"]["max_packed_seqs"]
    if judge.honours("cuda_graph.max_packed_seqs") and isinstance(capacity, int) and not judge.base().counter("eager_fallbacks"):
        variants.append((judge.without("cuda_graph", max_packed_seqs=capacity + 1), judge.feed))
    if not variants:
        raise NotApplicable("neither the padding's token nor the capacity is honoured")
    for scenario, feed in variants:
        judge.expect_equal("R8", judge.base(), judge.run(scenario, feed), whole=False)  # Rows of no document may differ.


def place_in_pack(judge):
    if judge.scenario["numerics"][0] not in (judge.claims("row_invariant") or []):
        raise NotApplicable("not claimed")
    judge.halves()
    feed = judge.feed.frozen()
    moved = feed.edited()
    for packs in moved.packs.values():
        for pack in packs:
            pack.reverse()
    a, b = judge.run(feed=feed), judge.run(feed=moved)
    for key in a.keys("token_loss", "activation"):
        count = len(a.entries[key].get("by_document", ()))
        if any(a.bits(key, i) != b.bits(key, count - 1 - i) for i in range(count)):
            raise Violated("R9", f"{key} depends on the places of documents")


def a_b_a(judge):
    judge.no_scales_of_earlier_steps()
    if not judge.honours("feed.learning_rate") or judge.scenario["model"]["dropout"]:
        raise NotApplicable("the learning rate is not honoured, or there is dropout")
    warm, feed = judge.warm_up(), judge.feed.edited()
    steps = [step for phase, step in feed.packs if phase == "training"]
    if len(steps) < 2 or feed.packs["training", 0] == feed.packs["training", 1]:
        raise NotApplicable("no two steps with different documents")
    if not any(target >= 0 for step in (0, 1) for pack in feed.packs["training", step] for document in pack for target in document.targets):
        raise NotApplicable("neither step has a target")
    order = [0] * (warm + 1) + [1, 0]
    feed.packs = {("training", at): judge.feed.packs["training", step] for at, step in enumerate(order)}
    if len({len(packs) for packs in feed.packs.values()}) > 1:
        raise NotApplicable("the number of microbatches changes")
    feed.steps, feed.learning_rate = len(order), [0.0] * len(order)
    feed.loss_scale = [judge.feed.loss_scale[step] for step in order]
    scenario = judge.without("training", steps=len(order), eval_every=0, recapture_at=[], change_microbatches_at=[])
    scenario = changed(scenario, **{"training.microbatches": len(feed.packs["training", 0]) // judge.ranks})
    result = judge.run(scenario, feed)
    for key in result.keys("gradient", "token_loss", step=warm):
        kind, phase, _, g, name = key
        if result.bits(key) != result.bits((kind, phase, warm + 2, g, name)):
            raise Violated("R10", f"{key} is another after other documents")
    if all(result.bits(key) == result.bits((*key[:2], warm + 1, *key[3:])) for key in result.keys("gradient", step=warm)):
        raise Violated("vacuous", "other documents have the same gradients")


def one_voice_microbatch(judge):
    judge.no_router_losses()
    count = len(judge.feed.packs["training", 0])
    if count < 2 or any(len(packs) != count for packs in judge.feed.packs.values()) or judge.scenario["model"]["dropout"]:
        raise NotApplicable("one microbatch, a changing number of them, or dropout")
    for g in (0, count - 1):
        voice = judge.feed.frozen().voice(lambda _, m, __, g=g: m == g)
        a = judge.run(feed=voice)
        rotated = [(m + 1) % count for m in range(count)]
        others = [voice.permuted(rotated)]
        if not judge.in_fp8("delayed"):
            others.append(voice.replaced(lambda _, m, __, g=g: m == g))
        for other in others:
            judge.expect_equal("R11", a, judge.run(feed=other), a.keys("gradient"))
        if not a.has_gradient():
            raise NotApplicable("the microbatch has no target")


def scale(judge):
    judge.no_router_losses()
    judge.no_scales_of_earlier_steps()
    if not judge.honours("feed.loss_scale"):
        raise NotApplicable("the loss scale is not honoured")
    feed = judge.feed.frozen()
    twice = feed.edited(loss_scale=[2 * value for value in feed.loss_scale])
    a, b = judge.run(feed=feed), judge.run(feed=twice)
    judge.expect_equal("R12", a, b, a.keys("token_loss"))
    keys = [key for key in a.keys("gradient") if a.entries[key]["nonzero"]][:256]
    if not keys:
        raise NotApplicable("every gradient is zero")
    values = [judge.dump(feed, keys), judge.dump(twice, keys)]
    for key, tensor in values[0].items():
        if [2 * x for x in tensor.values()] != values[1][key].values():
            raise Violated("R12", f"{key} is not doubled by twice the loss scale")


def interludes(judge):
    done = False
    for key, value, counter in (("training.eval_every", 1, "evaluations"), ("training.recapture_at", None, "recaptures")):
        if not judge.honours(key) or key.endswith("recapture_at") and judge.scenario["cuda_graph"]["impl"] == "none":
            continue
        value = value or [judge.scenario["training"]["steps"] - 1]
        section, name = key.split(".")
        if judge.scenario[section][name]:
            value = 0 if name == "eval_every" else []
        scenario = changed(judge.scenario, **{key: value})
        feed = judge.feed.edited()
        feed.packs = {key: packs for key, packs in feed.packs.items() if key[0] == "training"}
        if name == "eval_every" and value:
            evaluated = judge.feed.replaced(lambda *_: False).packs
            feed.packs |= {("evaluation", step): evaluated["training", step] for step in range(feed.steps)}
        elif name != "eval_every":
            feed = judge.feed
        other = judge.run(scenario, feed)
        judge.expect_equal("R13", judge.base(), other, judge.base().keys())
        if other.counter(counter) == judge.base().counter(counter):
            raise Violated("vacuous", f"{key} changes nothing in the counter {counter}")
        done = True
    if judge.honours("run.resume_at") and judge.feed.steps > 1:
        other = judge.run(resume_at=[judge.feed.steps - 1])
        judge.expect_equal("R13", judge.base(), other)
        done = True
    if not done:
        raise NotApplicable("nothing can be put in between")


STREAMS = ("compute", "d2h", "h2d", "gather", "reduce", "graph")


def amplified(judge):
    words = judge.hello.get("amplifies", [])
    if not words:
        raise NotApplicable("the engine has no amplifier")
    if "poison" in words:
        judge.expect_equal("R14", judge.base(), judge.run(amplify={"poison": True}))
    for stream in judge.hello.get("delays", STREAMS) if "delay" in words else ():
        judge.expect_equal("R14", judge.base(), judge.run(amplify={"delay_us": {stream: 10000}}))


def graph_fit(judge):
    """Microbatches after warm-up (steps under full_iteration) with more slots than the largest capacity, and the others: each as
    the least and the most that the ranks may count. Where one of a rank does not fit, the other ranks may replay theirs, or all
    may fall back together."""
    graph, data, ranks = judge.scenario["cuda_graph"], judge.scenario["data"], judge.ranks
    too_large, replayed = [0, 0], [0, 0]
    if graph["impl"] == "none":
        return too_large, replayed
    capacity = graph["max_packed_seqs"]
    largest = max(capacity) if isinstance(capacity, list) else capacity
    for step in range(graph["warmup_steps"], judge.feed.steps):
        over = [slots_in_use([len(document.tokens) for document in pack], data["pack_length"], data["tail"], data["align"],
                             data["gaps"]) > largest for pack in judge.feed.packs["training", step]]
        by_rank = [over[rank::ranks] for rank in range(ranks)]
        whole = graph["impl"] == "full_iteration"
        for of_ranks in [[any(one) for one in by_rank]] if whole else zip(*by_rank):
            alone, together = sum(of_ranks), ranks * any(of_ranks)
            too_large = [too_large[0] + alone, too_large[1] + together]
            replayed = [replayed[0] + ranks - together, replayed[1] + ranks - alone]
    return too_large, replayed


def counters(judge):
    base, feed = judge.base(), judge.feed
    packs = [pack for (phase, _), list_of_packs in feed.packs.items() if phase == "training" for pack in list_of_packs]
    (fewest, most), (replayed, may_replay) = graph_fit(judge)
    exact = {
        "microbatches": len(packs), "tokens": sum(len(document.tokens) for pack in packs for document in pack),
        "targets": sum(target >= 0 for pack in packs for document in pack for target in document.targets),
        "evaluations": judge.ranks * sum(phase == "evaluation" for phase, _ in feed.packs), "resumes": 0,
        "recaptures": judge.ranks * len(judge.scenario["training"]["recapture_at"])}
    if not may_replay:
        exact |= {"graph_replays": 0}
    if not judge.scenario["offload"]["modules"]:
        exact |= {"bytes_offloaded": 0}
    for name in judge.hello.get("counts", {}):
        if name not in base.counters[0]:
            raise EngineFailure("protocol", f"no counter {name}")
        if name in exact and base.counter(name) != exact[name]:
            raise Violated("counters", f"{name} is {base.counter(name)}, must be {exact[name]}")
        if name == "eager_fallbacks" and not fewest <= base.counter(name) <= most:
            raise Violated("counters", f"{name} is {base.counter(name)}, must be {fewest if fewest == most else f'{fewest} to {most}'}")
    if "bytes_reloaded" in base.counters[0] and base.counter("bytes_reloaded") != base.counter("bytes_offloaded"):
        raise Violated("counters", f"of {base.counter('bytes_offloaded')} bytes that were offloaded {base.counter('bytes_reloaded')} came back")
    sharded = judge.ranks > 1 or judge.scenario["fsdp"]["strategy"] != "no_shard"
    for name, asked in (("graph_replays", replayed), ("graphs_captured", replayed), ("collectives", sharded and judge.ranks > 1)):
        if asked and name in judge.hello.get("counts", {}) and not base.counter(name):
            raise Violated("vacuous", f"{name} is 0")


def in_flight(judge):
    training = judge.scenario["training"]
    most = max(len(packs) for (phase, _), packs in judge.feed.packs.items() if phase == "training") // judge.ranks
    if not judge.honours("training.in_flight") or training["in_flight"] <= 1 >= most:
        raise NotApplicable("the number in flight is not honoured, or there is one microbatch")
    other = 1 if training["in_flight"] > 1 else 2
    honoured = judge.hello["honours"]["training.in_flight"]
    if isinstance(honoured, list) and other not in honoured or isinstance(honoured, dict) and not (
            honoured.get("min", other) <= other <= honoured.get("max", other) and other % honoured.get("multiple_of", 1) == 0):
        raise NotApplicable("the engine honours no other number in flight")
    judge.expect_equal("R11b", judge.base(), judge.run(judge.without("training", in_flight=other, resume_at=[])))


def near(got, want, magnitude):
    return abs(got - want) <= ROUNDING * magnitude + LEAST


def wrong_update(optimizer, numbers, gradient, before, after):
    """(kind, element, got, want) of the first number that AdamW does not make of what the engine had before it, or None."""
    (beta1, beta2), eps = optimizer["betas"], optimizer["eps"]
    rate, clip, decay, correction1, correction2 = numbers
    for i, g in enumerate(gradient):
        g *= clip
        m, v, w = before["moment1"][i], before["moment2"][i], before["weight"][i]
        new_m, new_v, new_w = after["moment1"][i], after["moment2"][i], after["weight"][i]
        want = beta1 * m + (1 - beta1) * g
        if not near(new_m, want, beta1 * abs(m) + (1 - beta1) * abs(g)):
            return "moment1", i, new_m, want
        want = beta2 * v + (1 - beta2) * g * g
        if not near(new_v, want, want):
            return "moment2", i, new_v, want
        step = new_m / correction1 / (math.sqrt(new_v / correction2) + eps)
        want = w - rate * (step + decay * w)
        if not near(new_w, want, abs(w) + rate * (abs(step) + decay * abs(w))):
            return "weight", i, new_w, want
    return None


def expect_updates(judge):
    """False where nothing could be looked at."""
    kinds = ("gradient", "weight", "moment1", "moment2")
    if not judge.claims("weights_by_name") or not set(kinds) <= set(judge.hello["observes"]):
        return False
    optimizer, any_step = judge.scenario["training"]["optimizer"], False
    values = judge.values(judge.base().keys(*kinds))
    before = {name: {"weight": tensor.values(), "moment1": [0.0] * len(tensor.values()), "moment2": [0.0] * len(tensor.values())}
              for name, tensor in judge.feed.weights.items()}
    for step in range(judge.feed.steps):
        norm = math.sqrt(sum(g * g for key, list_ in values.items() if key[0] == "gradient" and key[2] == step for g in list_))
        clip = optimizer["clip"]
        for name, tensor in judge.feed.weights.items():
            now = {kind: values.get((kind, "training", step, None, name)) for kind in kinds}
            if None in now.values() or name not in before:
                before.pop(name, None)
                continue
            numbers = (judge.feed.learning_rate[step], clip / norm if clip and norm > clip else 1.0,
                       optimizer["weight_decay"] if len(tensor.shape) > 1 else 0.0, 1 - optimizer["betas"][0] ** (step + 1),
                       1 - optimizer["betas"][1] ** (step + 1))
            any_step = True
            # A clipped gradient is rounded once more than the norm of all elements can say.
            near_the_limit = clip and abs(norm - clip) <= 1e-4 * clip
            wrong = None if near_the_limit else wrong_update(optimizer, numbers, now["gradient"], before[name], now)
            if wrong:
                kind, element, got, want = wrong
                raise Violated("R16b", f"{kind} of {name} in step {step}: element {element} is {got}, and AdamW makes {want}")
            before[name] = now
    return any_step


def expect_losses(judge):
    if not judge.claims("loss_scaled") or not {"loss", "token_loss"} <= set(judge.hello["observes"]):
        return False
    values = judge.values(judge.base().keys("token_loss") + [("loss", "training", s, None, "loss") for s in range(judge.feed.steps)])
    for step in range(judge.feed.steps):
        packs = judge.feed.packs["training", step]
        losses = [values.get(("token_loss", "training", step, g, "token_loss")) for g in range(len(packs))]
        told = values.get(("loss", "training", step, None, "loss"))
        if None in losses or told is None:
            return step > 0
        targets = sum(target >= 0 for pack in packs for document in pack for target in document.targets)
        scale = judge.feed.loss_scale[step] if judge.honours("feed.loss_scale") else 1 / max(targets, 1)
        want = scale * sum(map(sum, losses))
        if not abs(told[0] - want) <= LOSS_ROUNDING * abs(want):
            raise Violated("R16b", f"the loss of step {step} is {told[0]}, and the token losses make {want}")
    return judge.feed.steps > 0


def update(judge):
    losses = expect_losses(judge)
    if not expect_updates(judge) and not losses:
        raise NotApplicable("the engine neither shows the optimizer's state in fp32 nor claims loss_scaled")


def scaled_loss(judge, feed):
    """The loss of the first step."""
    keys = [key for key in judge.base().keys("token_loss", step=0)]
    values = judge.values(keys, feed)
    if len(values) < len(keys):
        raise NotApplicable("token losses are not in fp32")
    return sum(map(sum, values.values())) * judge.feed.loss_scale[0]


def moved(judge, name, gradient, part, signs):
    """Two feeds with the weight moved up and down, how the gradient says that the loss changes between them, and how large
    such a change is. `signs`: None along the gradient, where all of it counts, else up or down by chance."""
    tensor = judge.feed.weights[name]
    weight, norm = tensor.values(), math.hypot(*gradient)
    step, each = part * max(math.hypot(*weight), 1e-3), 1 / math.sqrt(len(weight))
    units = [g / norm for g in gradient] if signs is None else [sign * each for sign in signs]
    sides = [array.array("f", [w + way * step * unit for w, unit in zip(weight, units)]) for way in (1, -1)]
    change = sum(g * (up - down) for g, up, down in zip(gradient, *sides))
    feeds = [judge.feed.edited(weights=judge.feed.weights | {name: type(tensor).of("F32", tensor.shape, side)}) for side in sides]
    return feeds, change, 2 * step * norm * (1 if signs is None else each)


def expect_derivative(judge, name, gradient, signs, loss):
    """False where rounding hides the change, or the loss bends too much."""
    before, accused, scans = None, None, "M" in judge.scenario["model"]["pattern"]
    for part in STEPS:
        feeds, made, size = moved(judge, name, gradient, part, signs)
        if size < LEAST_OVER_ROUNDING * LOSS_UNITS * abs(loss):
            break
        change = scaled_loss(judge, feeds[0]) - scaled_loss(judge, feeds[1])
        if abs(change - made) <= TOLERANCE * size:
            return True
        # Behind a norm of a row near 0 a loss may look straight over large steps: the smallest two accuse.
        straight, before = before is not None and abs(change / size - before) <= STRAIGHT, change / size
        accused = f"gradient of {name} makes {made} of a change, and the loss changes by {change}" \
            if straight and not (scans and part > SMALL_WITH_SCANS) else None
    if accused:
        raise Violated("R16c", accused)
    return False


def derivative(judge):
    model = judge.scenario["model"]
    scans = "M" in model["pattern"]
    if not judge.claims("weights_by_name") or not judge.honours("feed.loss_scale"):
        raise NotApplicable("the engine begins with its own weights, or has its own loss scale")
    if judge.scenario["numerics"] != ["fp32"] or not {"gradient", "token_loss"} <= set(judge.hello["observes"]):
        raise NotApplicable("only fp32 is fine enough, with gradients and token losses observed")
    if model["hidden"] < LEAST_OF_A_NORM or scans and model["mamba"]["d_inner"] // model["mamba"]["groups"] < LEAST_OF_A_NORM:
        raise NotApplicable("norms of few elements leap")
    judge.no_router_losses()
    keys = [key for key in judge.base().keys("gradient", step=0) if judge.base().entries[key]["nonzero"]]
    loss, any_gradient = scaled_loss(judge, judge.feed), False
    for key, gradient in judge.values(keys).items():
        draws = random.Random(key[4])
        by_chance = [draws.choice((1, -1)) for _ in gradient]
        for signs in (None, by_chance):
            any_gradient = expect_derivative(judge, key[4], gradient, signs, loss) or any_gradient
    if not any_gradient:
        raise NotApplicable("no gradient is large enough")


RELATIONS = {
    "R1": ("repeat", repeat), "R2": ("graphs", graphs), "R3": ("offload", offload), "R4": ("recompute", recompute),
    "R5": ("sharding", sharding), "R5b": ("sharding-all", sharding_all), "R6": ("neighbours", neighbours),
    "R7": ("one-voice-document", one_voice_document), "R8": ("padding", padding), "R9": ("place", place_in_pack),
    "R10": ("a-b-a", a_b_a), "R11": ("one-voice-microbatch", one_voice_microbatch), "R11b": ("in-flight", in_flight),
    "R12": ("scale", scale), "R13": ("interludes", interludes), "R14": ("amplified", amplified), "R15": ("counters", counters),
    "R16b": ("update", update), "R16c": ("derivative", derivative)}
