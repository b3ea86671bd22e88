"""The documents and weights of a run (docs/engine-protocol.md, section 7)."""
import dataclasses
import os

from .tensors import read_file


@dataclasses.dataclass
class Document:
    number: int  # Its number in its step.
    tokens: list
    targets: list  # As many as tokens; -1 where there is no loss.


class Feed:
    """All packs of a run, and its weights by name."""

    def __init__(self, folder):
        data = read_file(os.path.join(folder, "data.safetensors"))
        self.weights = read_file(os.path.join(folder, "weights.safetensors"))
        self.loss_scale = data["loss_scale"].values()
        self.learning_rate = data["learning_rate"].values()
        self.padding_token = data["padding_token"].values()[0]
        tokens, targets = data["tokens"].values(), data["targets"].values()
        rows = data["documents"].values()
        documents = []
        for number, begin, length in zip(rows[0::3], rows[1::3], rows[2::3]):
            documents.append(Document(number, tokens[begin : begin + length], targets[begin : begin + length]))
        self._packs, columns = {}, data["packs"].values()
        for phase, step, microbatch, first, count in zip(*(columns[i::5] for i in range(5))):
            key = ("evaluation" if phase else "training", step, microbatch)
            self._packs[key] = documents[first : first + count]

    def documents(self, phase, step, global_microbatch):
        return self._packs[(phase, step, global_microbatch)]

    def microbatches(self, phase, step, rank, ranks):
        """The documents of each microbatch of this rank in this step, in order of the local number; [] if there are none."""
        found, number = [], rank
        while (phase, step, number) in self._packs:
            found.append(self._packs[(phase, step, number)])
            number += ranks
        return found


def pack_rows(lengths, pack_length, align=1, gaps=0):
    """Where the documents lie, [begin, end) each: one after the other, slots as docs/arithmetic.md, section 1, defines them."""
    rows, begin = [], 0
    for length in lengths:
        rows.append([begin, begin + length])
        begin += -(-(length + gaps) // align) * align if length else 0
    if begin > pack_length:
        raise ValueError(f"{begin} rows of slots do not fit a pack of {pack_length}")
    return rows


def slots_in_use(lengths, pack_length, tail, align=1, gaps=0):
    """Slots of a pack: its documents, empty ones included, and the dummy slot of `append_dummy_seq` if rows are left."""
    used = sum(-(-(length + gaps) // align) * align for length in lengths if length)
    return len(lengths) + (tail == "append_dummy_seq" and used < pack_length)
