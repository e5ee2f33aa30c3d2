/* The floor: the same work on libwgpu_native with nothing around it. */

#include <wgpu.h>

#include <string.h>

typedef struct {
  WGPUDevice device;
  WGPUQueue queue;
  WGPUBuffer input, output, staging;
  size_t bytes;
  size_t count;
  const WGPUComputePipeline* pipelines;
  const WGPUBindGroup* groups;
  int is_shared; /* input and output are mapped themselves */
  int is_open;   /* the input is mapped */
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
  if (!work->is_shared) {
    wgpuCommandEncoderCopyBufferToBuffer(encoder, work->output, 0, work->staging, 0,
                                         work->bytes);
  }
  WGPUCommandBuffer commands = wgpuCommandEncoderFinish(encoder, NULL);
  wgpuCommandEncoderRelease(encoder);
  return commands;
}

void bare_record(const Work* work) { wgpuCommandBufferRelease(record(work)); }

static void map(WGPUBuffer buffer, WGPUMapMode mode, size_t bytes, int* status) {
  *status = 0;
  WGPUBufferMapCallbackInfo info = {0};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = on_mapped;
  info.userdata1 = status;
  wgpuBufferMapAsync(buffer, mode, 0, bytes, info);
}

static void write(Work* work, const void* input) {
  if (!work->is_shared) {
    wgpuQueueWriteBuffer(work->queue, work->input, 0, input, work->bytes);
    return;
  }
  if (!work->is_open) {
    int status;
    map(work->input, WGPUMapMode_Write, work->bytes, &status);
    while (status == 0) {
      wgpuDevicePoll(work->device, 1, NULL);
    }
  }
  memcpy(wgpuBufferGetMappedRange(work->input, 0, work->bytes), input, work->bytes);
  wgpuBufferUnmap(work->input);
}

/* Where buffers are mapped themselves, the input is left so for the next call. */
int bare_run(Work* work, const void* input, void* output) {
  write(work, input);
  WGPUCommandBuffer commands = record(work);
  WGPUSubmissionIndex index = wgpuQueueSubmitForIndex(work->queue, 1, &commands);
  wgpuCommandBufferRelease(commands);
  WGPUBuffer read = work->is_shared ? work->output : work->staging;
  int status, opened = WGPUMapAsyncStatus_Success;
  map(read, WGPUMapMode_Read, work->bytes, &status);
  if (work->is_shared) {
    map(work->input, WGPUMapMode_Write, work->bytes, &opened);
  }
  while (status == 0 || opened == 0) {
    wgpuDevicePoll(work->device, 1, &index);
  }
  work->is_open = work->is_shared;
  if (status == WGPUMapAsyncStatus_Success) {
    memcpy(output, wgpuBufferGetConstMappedRange(read, 0, work->bytes), work->bytes);
    wgpuBufferUnmap(read);
  }
  return status;
}

/* Leaves the buffers to others. */
void bare_close(Work* work) {
  if (work->is_open) {
    wgpuBufferUnmap(work->input);
    work->is_open = 0;
  }
}
