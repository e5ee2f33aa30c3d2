// Stands between the native replay and wgpu-native. One chosen call fails, as
// wgpu-native itself would have it fail, or finds the device lost. What is not defined
// here is found in wgpu-native, which this library is linked to.

#define _GNU_SOURCE
#include <wgpu.h>

#include <dlfcn.h>
#include <stdint.h>

int calls;        // counted so far
int chosen = -1;  // which of them, from 0, meets the fault
int loses;        // whether that is the loss of `device`, or the call fails alone
WGPUDevice device;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_chosen(void) { return calls++ == chosen; }

// Of a call that can fail alone. The device is lost before the call.
static int fails(void) {
  if (!is_chosen()) {
    return 0;
  }
  if (loses) {
    wgpuDeviceDestroy(device);
  }
  return !loses;
}

// Of a call that cannot: it counts only where devices are lost.
static void may_be_lost(void) {
  if (loses) {
    fails();
  }
}

WGPUFuture wgpuBufferMapAsync(WGPUBuffer buffer, WGPUMapMode mode, size_t offset,
                              size_t size, WGPUBufferMapCallbackInfo info) {
  if (fails()) {
    const WGPUStringView text = {"injected", WGPU_STRLEN};
    info.callback(WGPUMapAsyncStatus_Error, text, info.userdata1, info.userdata2);
    return (WGPUFuture){0};
  }
  return REAL(wgpuBufferMapAsync)(buffer, mode, offset, size, info);
}

void* wgpuBufferGetMappedRange(WGPUBuffer buffer, size_t offset, size_t size) {
  return fails() ? NULL : REAL(wgpuBufferGetMappedRange)(buffer, offset, size);
}

const void* wgpuBufferGetConstMappedRange(WGPUBuffer buffer, size_t offset,
                                          size_t size) {
  return fails() ? NULL : REAL(wgpuBufferGetConstMappedRange)(buffer, offset, size);
}

void wgpuQueueWriteBuffer(WGPUQueue queue, WGPUBuffer buffer, uint64_t offset,
                          const void* data, size_t size) {
  // An offset must be a multiple of four.
  REAL(wgpuQueueWriteBuffer)(queue, buffer, offset + (uint64_t)fails(), data, size);
}

WGPUCommandEncoder wgpuDeviceCreateCommandEncoder(
    WGPUDevice of, const WGPUCommandEncoderDescriptor* descriptor) {
  may_be_lost();
  return REAL(wgpuDeviceCreateCommandEncoder)(of, descriptor);
}

void wgpuComputePassEncoderDispatchWorkgroups(WGPUComputePassEncoder pass, uint32_t x,
                                              uint32_t y, uint32_t z) {
  // More workgroups than any adapter takes.
  REAL(wgpuComputePassEncoderDispatchWorkgroups)(pass, fails() ? UINT32_MAX : x, y, z);
}

WGPUCommandBuffer wgpuCommandEncoderFinish(
    WGPUCommandEncoder encoder, const WGPUCommandBufferDescriptor* descriptor) {
  if (fails()) {
    wgpuCommandEncoderPopDebugGroup(encoder);  // there is none
  }
  return REAL(wgpuCommandEncoderFinish)(encoder, descriptor);
}

// Where a submit fails, or a buffer is mapped while its device is lost, wgpu-native
// aborts the process. So the device is lost behind these two.
WGPUSubmissionIndex wgpuQueueSubmitForIndex(WGPUQueue queue, size_t count,
                                            const WGPUCommandBuffer* commands) {
  const WGPUSubmissionIndex index =
      REAL(wgpuQueueSubmitForIndex)(queue, count, commands);
  may_be_lost();
  return index;
}

WGPUBool wgpuDevicePoll(WGPUDevice of, WGPUBool wait,
                        const WGPUSubmissionIndex* index) {
  const WGPUBool is_idle = REAL(wgpuDevicePoll)(of, wait, index);
  if (wait) {  // else buffers may still be mapped by the next one
    may_be_lost();
  }
  return is_idle;
}
