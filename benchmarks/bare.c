/* The floor: the same work on libwgpu_native with nothing around it. */

#include <string.h>
#include <wgpu.h>

typedef struct {
  WGPUDevice device;
  WGPUQueue queue;
  WGPUBuffer input, output, staging;
  size_t bytes;
  size_t count;
  const WGPUComputePipeline* pipelines;
  const WGPUBindGroup* groups;
} Work;

static void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void* done,
                      void* unused) {
  (void)message;
  (void)unused;
  *(int*)done = (int)status;
}

static WGPUCommandBuffer record(const Work* work) {
  WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(work->device, NULL);
  WGPUComputePassEncoder pass = wgpuCommandEncoderBeginComputePass(encoder, NULL);
  for (size_t i = 0; i < work->count; ++i) {
    wgpuComputePassEncoderSetPipeline(pass, work->pipelines[i]);
    wgpuComputePassEncoderSetBindGroup(pass, 0, work->groups[i], 0, NULL);
    wgpuComputePassEncoderDispatchWorkgroups(pass, 1, 1, 1);
  }
  wgpuComputePassEncoderEnd(pass);
  wgpuComputePassEncoderRelease(pass);
  wgpuCommandEncoderCopyBufferToBuffer(encoder, work->output, 0, work->staging, 0,
                                       work->bytes);
  WGPUCommandBuffer commands = wgpuCommandEncoderFinish(encoder, NULL);
  wgpuCommandEncoderRelease(encoder);
  return commands;
}

void bare_record(const Work* work) { wgpuCommandBufferRelease(record(work)); }

int bare_run(const Work* work, const void* input, void* output) {
  wgpuQueueWriteBuffer(work->queue, work->input, 0, input, work->bytes);
  WGPUCommandBuffer commands = record(work);
  WGPUSubmissionIndex index = wgpuQueueSubmitForIndex(work->queue, 1, &commands);
  wgpuCommandBufferRelease(commands);
  int status = 0;
  WGPUBufferMapCallbackInfo info = {0};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = on_mapped;
  info.userdata1 = &status;
  wgpuBufferMapAsync(work->staging, WGPUMapMode_Read, 0, work->bytes, info);
  while (status == 0) {
    wgpuDevicePoll(work->device, 1, &index);
  }
  if (status == WGPUMapAsyncStatus_Success) {
    memcpy(output, wgpuBufferGetConstMappedRange(work->staging, 0, work->bytes),
           work->bytes);
    wgpuBufferUnmap(work->staging);
  }
  return status;
}
