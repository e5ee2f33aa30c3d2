// What is left of the GPU in the child of a fork: nothing that may be used.
//
// A driver's threads, locks and connections do not survive a fork. So where the parent
// had opened the GPU, every use in the child is refused at once, nothing is freed, and
// the child ends without the driver's exit handlers. A child whose parent had not can
// open it itself.

#pragma once

namespace etwgpu {

// Called before the first use of the GPU; throws as check_process() does.
void open_gpu();

// Throws Failure if this process is a fork of one that had opened the GPU.
void check_process();

bool is_forked();

// Called in the child of a fork.
void after_fork();

// Has the system call that, where nobody else does.
void watch_forks();

}  // namespace etwgpu
