"""Feeds made in Python, and the edits of docs/engine-protocol.md, section 13: for tests of an adapter without lockstep."""
import copy
import json
import math
import pathlib
import random

from .feed import Document
from .tensors import Tensor, write_file

# The canonical form has these keys only where they are not at their defaults.
LATER = {"training.resume_at", "cuda_graph.max_seqlen", "cuda_graph.evaluation", "cuda_graph.capture_passes",
         "cuda_graph.shared_memory", "offload.captured", "parallel.chunks", "parallel.schedule", "parallel.group",
         "fp8.recipe", "fp8.history", "fp8.algorithm", "fp8.margin", "fp8.save_original_input", "fp8.weight_cache",
         "fp8.param_gather"}
NEUTRAL = pathlib.Path(__file__).with_name("neutral_scenario.json")


def scenario(**keys):
    """The neutral scenario with some keys changed: scenario(**{"model.pattern": "*-"})."""
    result = json.loads(NEUTRAL.read_text(encoding="utf-8"))
    for key, value in keys.items():
        change(result, key, value)
    return result


def change(of, key, value):
    *sections, last = key.split(".")
    for word in sections:
        of = of.setdefault(word, {}) if key in LATER else of[word]
    if last not in of and key not in LATER:
        raise KeyError(key)
    of[last] = value


def changed(of, **keys):
    result = copy.deepcopy(of)
    for key, value in keys.items():
        change(result, key, value)
    return result


def layer_shapes(i, symbol, model):
    """The parameters of one layer in order: name -> shape (section 7)."""
    hidden, attention, mamba, moe = model["hidden"], model["attention"], model["mamba"], model["moe"]
    wide = 2 if model["mlp"]["activation"] == "swiglu" else 1
    shapes = {"norm.gain": [hidden]}
    if symbol == "*":
        heads, size = attention["heads"], attention["head_dim"]
        shapes |= {"qkv.weight": [(heads + 2 * attention["kv_heads"]) * size, hidden], "proj.weight": [hidden, heads * size]}
    elif symbol == "-":
        inner = model["mlp"]["hidden"]
        shapes |= {"fc1.weight": [wide * inner, hidden], "fc2.weight": [hidden, inner]}
    elif symbol == "M":
        inner, groups = mamba["d_inner"], mamba["groups"] * mamba["state"]
        heads, channels = inner // mamba["head_dim"], inner + 2 * groups
        shapes |= {"in_proj.weight": [inner + channels + heads, hidden], "conv.weight": [channels, mamba["conv_width"]],
                   "conv.bias": [channels], "dt_bias": [heads], "a_log": [heads], "d": [heads],
                   "gated_norm.gain": [inner], "out_proj.weight": [hidden, inner]}
    else:
        count, inner, shared = moe["experts"], moe["hidden"], moe["shared_hidden"]
        shapes |= {"router.weight": [count, hidden], "experts.fc1.weight": [count * wide * inner, hidden],
                   "experts.fc2.weight": [count * hidden, inner]}
        if shared:
            shapes |= {"shared.fc1.weight": [wide * shared, hidden], "shared.fc2.weight": [hidden, shared]}
    return {f"layers.{i}.{name}": shape for name, shape in shapes.items()}


def parameter_shapes(model):
    shapes = {"embedding.weight": [model["vocab"], model["hidden"]]}
    for i, symbol in enumerate(model["pattern"]):
        shapes |= layer_shapes(i, symbol, model)
    shapes["final_norm.gain"] = [model["hidden"]]
    return shapes if model["tied_embedding"] else shapes | {"head.weight": [model["vocab"], model["hidden"]]}


def drawn_weights(of, seed):
    """Weights that are large enough for a small leak to show."""
    draw, weights = random.Random(seed), {}
    for name, shape in parameter_shapes(of["model"]).items():
        deviation = 0.5 if name == "embedding.weight" else 0.3 / math.sqrt(shape[-1] / 32) if len(shape) == 2 else 0.1
        mean = 1.0 if name.endswith("gain") else 0.0
        weights[name] = Tensor.of("F32", shape, [draw.gauss(mean, deviation) for _ in range(math.prod(shape))])
    return weights


class Feed:
    """The packs of a run before they are written: packs[phase, step][global microbatch] is a list of documents."""

    def __init__(self, of, seed=1):
        self.vocab, self.steps, self.packs = of["model"]["vocab"], of["training"]["steps"], {}
        self.weights, self.padding_token = drawn_weights(of, seed), 0
        draw, layouts = random.Random(seed + 1), of["data"]["documents"]
        every, changes = of["training"]["eval_every"], of["training"]["change_microbatches_at"]
        for step in range(self.steps):
            count = of["training"]["microbatches"]
            for item in changes:
                count = item["microbatches"] if item["step"] <= step else count
            count *= of["parallel"]["data"]
            for phase in ("training", "evaluation") if every and (step + 1) % every == 0 else ("training",):
                layout = layouts[step % len(layouts)]
                self.packs[phase, step] = self._drawn(draw, [layout[g % len(layout)] for g in range(count)])
        self.learning_rate = [of["training"]["optimizer"]["lr"]] * self.steps
        self.loss_scale = [self._scale(step) for step in range(self.steps)]

    def _drawn(self, draw, layout):
        number, packs = 0, []
        for lengths in layout:
            packs.append([])
            for length in lengths:
                tokens = [draw.randrange(self.vocab) for _ in range(length)]
                packs[-1].append(Document(number, tokens, tokens[1:] + [-1] * (length > 0)))
                number += 1
        return packs

    def _scale(self, step):
        targets = sum(target >= 0 for pack in self.packs["training", step] for d in pack for target in d.targets)
        return 2.0 ** -math.ceil(math.log2(max(1, targets)))

    def edited(self, **changes):
        """A deep copy with some attributes changed."""
        result = copy.deepcopy(self)
        for name, value in changes.items():
            getattr(result, name)  # It must be there.
            setattr(result, name, value)
        return result

    def targets(self):
        """The targets of every document, in order."""
        return [document.targets for packs in self.packs.values() for pack in packs for document in pack]

    def frozen(self):
        return self.edited(learning_rate=[0.0] * self.steps)

    def voice(self, speaks):
        """Only documents for which speaks(step, global microbatch, place) keep their targets."""
        result = self.edited()
        for (_, step), packs in result.packs.items():
            for g, pack in enumerate(packs):
                for place, document in enumerate(pack):
                    if not speaks(step, g, place):
                        document.targets = [-1] * len(document.targets)
        return result

    def replaced(self, keeps):
        """Documents but those for which keeps(step, global microbatch, place) get other tokens, every one of them another."""
        result = self.edited()
        for (_, step), packs in result.packs.items():
            for g, pack in enumerate(packs):
                for place, document in enumerate(pack):
                    if not keeps(step, g, place):
                        tokens = [(token + 1 + i % (self.vocab - 1)) % self.vocab for i, token in enumerate(document.tokens)]
                        document.targets = [t if t < 0 else tokens[i + 1] for i, t in enumerate(document.targets)]
                        document.tokens = tokens
        return result

    def permuted(self, order):
        """Microbatch order[g] of each step comes at place g."""
        result = self.edited()
        for key, packs in result.packs.items():
            result.packs[key] = [packs[g] for g in order]
        return result

    def write(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir()
        packs, documents, tokens, targets, count = [], [], [], [], 0
        for (phase, step), list_of_packs in sorted(self.packs.items(), key=lambda item: (item[0][0] != "training", item[0][1])):
            for g, pack in enumerate(list_of_packs):
                packs += [int(phase == "evaluation"), step, g, count, len(pack)]
                count += len(pack)
                for document in pack:
                    documents += [document.number, len(tokens), len(document.tokens)]
                    tokens += document.tokens
                    targets += document.targets
        write_file(folder / "data.safetensors", {
            "packs": Tensor.of("I64", [len(packs) // 5, 5], packs), "documents": Tensor.of("I64", [count, 3], documents),
            "tokens": Tensor.of("I32", [len(tokens)], tokens), "targets": Tensor.of("I32", [len(targets)], targets),
            "loss_scale": Tensor.of("F32", [self.steps], self.loss_scale),
            "learning_rate": Tensor.of("F32", [self.steps], self.learning_rate),
            "padding_token": Tensor.of("I32", [1], [self.padding_token])})
        write_file(folder / "weights.safetensors", self.weights)
        return str(folder)
