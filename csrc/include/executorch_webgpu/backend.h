// Programs that were exported with WebGPUPartitioner(portable=True), in C++ apps.
//
// An app links this library and a WebGPU one, loads a .pte with ExecuTorch's own Module
// or Method, and runs it: delegates named "WebGPUBackend" go to the GPU. There is
// nothing to call: the backend registers itself. Nothing refers to it either, so that
// it must be linked with -Wl,--no-as-needed as a shared library, and all of it from the
// archive, as the targets of the CMake package do (executorch_webgpu::backend and
// executorch_webgpu::backend_static); or call executorch_webgpu_register() before a
// program is loaded.
//
// webgpu.h's functions are taken from a library that the app has linked, else from the
// one that the environment variable ET_WEBGPU_LIBRARY names, else from a wgpu-native
// that the system finds.
//
// Options are ExecuTorch's backend options: executorch::runtime::set_option() for all
// that is loaded later, or LoadBackendOptionsMap for one program. Each may also be
// given as an environment variable, ET_WEBGPU_ADAPTER and so on, which loses against
// both.

#pragma once

#ifdef _WIN32
#define EXECUTORCH_WEBGPU_API __declspec(dllexport)
#else
#define EXECUTORCH_WEBGPU_API __attribute__((visibility("default")))
#endif

// Text: part of the adapter's name, such as "NVIDIA" or "llvmpipe"; "" is the best one.
#define EXECUTORCH_WEBGPU_ADAPTER "adapter"

// Bool, true: plans that compute with f16 may be taken, where the device can.
#define EXECUTORCH_WEBGPU_F16 "f16"

// Bool, true: plans that use subgroups may be taken, where the device can.
#define EXECUTORCH_WEBGPU_SUBGROUPS "subgroups"

// Bool, true: an adapter that computes on the host's processor gets plans for that;
// false: those for GPUs, which are slow there.
#define EXECUTORCH_WEBGPU_CPU_KERNELS "cpu_kernels"

// Text, "auto": when kernels are compiled. "auto": all are given to the driver before a
// method is loaded; some drivers put a part of the work off to the first call. "load":
// all of it is done before, so that no call at any size stops for it. "background": the
// same for the largest sizes; a thread does the others, which a call may have to wait
// for. "call": those for the largest sizes before, others in the first call of theirs.
#define EXECUTORCH_WEBGPU_COMPILE "compile"

// Bool, true: constants must be what their keys, hashes of their content, say.
#define EXECUTORCH_WEBGPU_VERIFY_WEIGHTS "verify_weights"

// Bool, false: the file is the app's own, and its kernels need no guard against loops
// that do not end. They are a little faster without.
#define EXECUTORCH_WEBGPU_TRUST_PLANS "trust_plans"

// Int, 600: seconds that a call waits for the GPU.
#define EXECUTORCH_WEBGPU_TIMEOUT "timeout"

// Bool; set_option() only, and at once: the mutable buffers of all loaded methods get
// the content that they had at load.
#define EXECUTORCH_WEBGPU_RESET_STATE "reset_state"

extern "C" {

// Registers the backend with ExecuTorch. Again is harmless.
EXECUTORCH_WEBGPU_API void executorch_webgpu_register(void);

// What went wrong last in this thread, as in ExecuTorch's log; "" if nothing did. Valid
// until the thread's next call of the backend.
EXECUTORCH_WEBGPU_API const char* executorch_webgpu_last_error(void);
}
