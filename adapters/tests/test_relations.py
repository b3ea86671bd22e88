"""The relations that compute something, on numbers alone: what AdamW makes of a gradient, and what a gradient makes of a loss."""
import array
import math
import pathlib
import random
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from lockstep_adapter import documents  # noqa: E402
from lockstep_adapter.relations import RELATIONS, NotApplicable, Violated, wrong_update  # noqa: E402
from lockstep_adapter.tensors import Tensor  # noqa: E402

OPTIMIZER = {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 0}


def fp32(value):
    return array.array("f", [value])[0]


def adamw(gradient, state, step, rate=0.01, decay=0.1, corrected=True):
    """The state after a step, rounded to fp32."""
    (beta1, beta2), after = OPTIMIZER["betas"], {"weight": [], "moment1": [], "moment2": []}
    for g, w, m, v in zip(gradient, state["weight"], state["moment1"], state["moment2"]):
        m, v = fp32(beta1 * m + (1 - beta1) * g), fp32(beta2 * v + (1 - beta2) * g * g)
        right1, right2 = (1 - beta1**step, 1 - beta2**step) if corrected else (1, 1)
        after["weight"].append(fp32(w - rate * (m / right1 / (math.sqrt(v / right2) + OPTIMIZER["eps"]) + decay * w)))
        after["moment1"].append(m)
        after["moment2"].append(v)
    return after


class Update(unittest.TestCase):
    def setUp(self):
        draws = random.Random(3)
        self.gradient = [fp32(draws.gauss(0, 1)) for _ in range(20)]
        self.start = {"weight": [fp32(draws.gauss(0, 1)) for _ in range(20)], "moment1": [0.0] * 20, "moment2": [0.0] * 20}

    def judged(self, after, decay=0.1):
        return wrong_update(OPTIMIZER, (0.01, 1.0, decay, 1 - 0.9, 1 - 0.95), self.gradient, self.start, after)

    def test_holds_where_it_is_adamw(self):
        self.assertIsNone(self.judged(adamw(self.gradient, self.start, 1)))

    def test_finds_what_is_not(self):
        self.assertEqual(self.judged(adamw(self.gradient, self.start, 1, decay=0.0))[0], "weight")
        self.assertEqual(self.judged(adamw(self.gradient, self.start, 1, corrected=False))[0], "weight")
        self.assertEqual(self.judged(adamw(self.gradient, self.start, 1, rate=0.02))[0], "weight")
        self.assertEqual(self.judged(adamw([-g for g in self.gradient], self.start, 1))[0], "moment1")
        self.assertEqual(self.judged(adamw([2 * g for g in self.gradient], self.start, 1))[0], "moment1")
        after = adamw(self.gradient, self.start, 1)
        after["moment2"][7] *= 1.001
        self.assertEqual(self.judged(after)[:2], ("moment2", 7))

    def test_a_nan_is_wrong(self):
        after = adamw(self.gradient, self.start, 1)
        after["weight"][3] = math.nan
        self.assertEqual(self.judged(after)[:2], ("weight", 3))


class Feed:
    """One weight, of which the loss is a polynomial."""

    def __init__(self, weights):
        self.weights, self.loss_scale, self.packs, self.steps = weights, [0.5], {("training", 0): [[]]}, 1

    def edited(self, weights):
        return Feed(weights)


class Engine:
    """What the derivative asks of a judge. The loss of a weight w is 3 + sum (w + w^2), its gradient 0.5 (1 + 2 w)."""

    ranks, hello = 1, {"observes": ["gradient", "token_loss"]}
    scenario = {"numerics": ["fp32"], "model": {"pattern": "-", "hidden": 8}}

    def __init__(self, gradient_of):
        draws = random.Random(5)
        weight = array.array("f", [draws.gauss(0, 1) for _ in range(12)])
        self.feed = Feed({"w": Tensor.of("F32", [3, 4], weight)})
        self.gradient = [fp32(gradient_of(i, 0.5 * (1 + 2 * w))) for i, w in enumerate(weight)]
        self.entries = {("gradient", "training", 0, None, "w"): {"nonzero": 12},
                        ("token_loss", "training", 0, 0, "token_loss"): {"nonzero": 1}}

    def claims(self, name):
        return name == "weights_by_name"

    def honours(self, key):
        return key == "feed.loss_scale"

    def no_router_losses(self):
        pass

    def base(self):
        return self

    def keys(self, kind, step):
        return [key for key in self.entries if key[0] == kind and key[2] == step]

    def values(self, keys, feed=None):
        weight = (feed or self.feed).weights["w"].values()
        return {key: self.gradient if key[0] == "gradient" else [fp32(3 + sum(w + w * w for w in weight))] for key in keys}


class Derivative(unittest.TestCase):
    def judged(self, gradient_of):
        RELATIONS["R16c"][1](Engine(gradient_of))

    def test_holds_where_it_is_the_derivative(self):
        self.judged(lambda _, g: g)

    def test_finds_what_is_not(self):
        for wrong in (lambda _, g: 2 * g, lambda _, g: -g, lambda i, g: g if i < 6 else 0.0, lambda i, g: g if i else 3 * g + 2):
            with self.assertRaises(Violated) as caught:
                self.judged(wrong)
            self.assertEqual(caught.exception.judge, "R16c")

    def test_says_nothing_of_gradients_that_rounding_hides(self):
        with self.assertRaises(NotApplicable):
            self.judged(lambda _, g: 1e-9 * g)


class InFlight(unittest.TestCase):
    def test_needs_another_number_that_is_honoured(self):
        class Judge(Engine):
            scenario = {"training": {"in_flight": 2}}
            hello = {"honours": {"training.in_flight": [2]}}

            def honours(self, key):
                return True

        with self.assertRaisesRegex(NotApplicable, "no other number"):
            RELATIONS["R11b"][1](Judge(lambda _, g: g))
        Judge.hello = {"honours": {"training.in_flight": {"min": 2}}}
        with self.assertRaisesRegex(NotApplicable, "no other number"):
            RELATIONS["R11b"][1](Judge(lambda _, g: g))


class Counts:
    """A judge of an engine on two ranks that counts fallbacks, with graphs for two sequences: of the four microbatches of a step the
    second of rank 1 has three documents."""

    ranks, hello = 2, {"counts": {"eager_fallbacks": "said", "graph_replays": "seen"}}

    def __init__(self, impl, fallbacks, replays=1):
        self.scenario = documents.scenario(**{
            "parallel.data": 2, "cuda_graph.impl": impl, "cuda_graph.max_packed_seqs": 2, "cuda_graph.warmup_steps": 1, "training.steps": 3,
            "training.microbatches": 2, "data.pack_length": 16, "data.documents": [[[9], [9], [9], [3, 4, 5]]]})
        self.feed = documents.Feed(self.scenario)
        self.counters = [{"eager_fallbacks": count, "graph_replays": replays} for count in fallbacks]

    def base(self):
        return self

    def counter(self, name):
        return sum(counters[name] for counters in self.counters)


class Fallbacks(unittest.TestCase):
    def judged(self, *arguments):
        RELATIONS["R15"][1](Counts(*arguments))

    def test_ranks_may_fall_back_alone_or_together(self):
        for impl in ("partial", "full_iteration"):
            self.judged(impl, [0, 2])
            self.judged(impl, [2, 2])
            for wrong in ([0, 1], [3, 2], [0, 0]):
                with self.assertRaisesRegex(Violated, "must be 2 to 4"):
                    self.judged(impl, wrong)

    def test_replays_are_asked_for_where_all_ranks_fit(self):
        self.judged("full_iteration", [2, 2], 0)
        with self.assertRaisesRegex(Violated, "graph_replays is 0"):
            self.judged("partial", [2, 2], 0)


if __name__ == "__main__":
    unittest.main()
