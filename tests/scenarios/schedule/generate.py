"""Makes pass_orders.txt, the orders that scenarios/pass_order.h must give:

    pip download megatron-core==0.16.1 --no-deps
    python3 generate.py megatron_core-0.16.1-*.whl > pass_orders.txt

It runs two functions of that release, get_schedule_table and get_pp_rank_microbatches, out of the wheel's source; of its
other code, the pairing of a forward with a backward pass and the count of one-chunk stages are stated here anew. PyTorch is
not needed. A line is: schedule, stages, stage, chunks, group, microbatches, then the passes, as F01 for the forward pass of
chunk 0 and microbatch 1.
"""
import ast
import sys
import types
import typing
import zipfile

SOURCE = "megatron/core/pipeline_parallel/schedules.py"
TAKEN = ("get_schedule_table", "get_pp_rank_microbatches")


def functions_of(wheel):
    tree = ast.parse(zipfile.ZipFile(wheel).read(SOURCE))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in TAKEN]
    names = {"Optional": typing.Optional, "P2PCommunicator": object}
    exec(compile(tree, SOURCE, "exec"), names)
    return (names[name] for name in TAKEN)


def stage_of(stages, stage, chunks):
    """What the second function asks about the stage."""
    group = types.SimpleNamespace(size=lambda: stages, rank=lambda: stage)
    return types.SimpleNamespace(pp_group=group, virtual_pipeline_model_parallel_size=chunks)


def passes(functions, schedule, stages, stage, chunks, group, microbatches):
    table_of, counts_of = functions
    # One stage alone interleaves nothing there. Its count is that of the last stage of two, which has no later one either.
    place = stage_of(stages, stage, chunks if chunks > 1 else None) if stages > 1 else stage_of(2, 1, chunks if chunks > 1 else None)
    _, _, ahead, _ = counts_of(microbatches, chunks, group, forward_only=schedule == "gpipe", p2p_communicator=place)
    table = table_of(microbatches, chunks, group)
    forward = [f"F{chunk}{microbatch}" for microbatch, chunk in table]
    backward = [f"B{chunks - 1 - chunk}{microbatch}" for microbatch, chunk in table]
    order = forward[:ahead]
    for i, one in enumerate(backward):
        order += forward[ahead + i:ahead + i + 1] + [one]
    return order


def is_legal(stages, group, microbatches):
    rest = microbatches % group
    return stages <= group <= microbatches and (rest == 0 or rest >= stages)


def main():
    functions = tuple(functions_of(sys.argv[1]))
    for stages in (1, 2, 3, 4):
        for stage in range(stages):
            for microbatches in range(1, 8):
                print("1f1b", stages, stage, 1, stages, microbatches,
                      *passes(functions, "1f1b", stages, stage, 1, stages, microbatches))
            for chunks in (1, 2, 3):
                for microbatches in range(stages, 8):
                    for group in range(stages, microbatches + 1):
                        if not is_legal(stages, group, microbatches):
                            continue
                        for schedule in ("interleaved", "gpipe") if chunks > 1 else ("gpipe",):
                            print(schedule, stages, stage, chunks, group, microbatches,
                                  *passes(functions, schedule, stages, stage, chunks, group, microbatches))


if __name__ == "__main__":
    main()
