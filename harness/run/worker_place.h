// Where a process that runs many cases lives: on which GPU, and how it keeps memory.
#pragma once

namespace lockstep {

// This process, which has not opened CUDA yet, will see one of its `gpus` GPUs alone: that with
// this number, counted around.
void take_gpu(int number, int gpus);
// A case allocates and frees some ten MiB in blocks of every size: what the kernel gave once is
// kept for the next case.
void keep_freed_memory();

}  // namespace lockstep
