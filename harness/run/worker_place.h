// Where a process that runs many cases lives: on which GPU or core, and how it keeps memory.
#pragma once

namespace lockstep {

// This process, which has not opened CUDA yet, will see one of its `gpus` GPUs alone: that with
// this number, counted around.
void take_gpu(int number, int gpus);
// This process, with all threads that it starts, stays on the core with this number among those
// that it may use, so that threads which take turns share its caches and wake no other core. Where
// cores have several hardware threads, first come the first threads of all cores. Only if `workers`
// have a thread each and take more than half of them: smaller programs may run beside each other,
// and would all choose the first cores.
void take_core(int number, int workers);
// A child of such a process may use the cores again that its parent left.
void leave_core();
// A case allocates and frees some ten MiB in blocks of every size: what the kernel gave once is
// kept for the next case.
void keep_freed_memory();

}  // namespace lockstep
