/* What a driver holds for compiled kernels: opens a device as the player does, compiles
 * what it is told, and waits to be looked at.
 *
 *   pipelines < lines of "<file of WGSL> <a digit for each binding's access>"
 *
 * Answers "ok <adapter>" at an empty line, and ends at the end of its input. */

#include <wgpu.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static WGPUDevice device;

static void fail(const char* what) {
  fprintf(stderr, "pipelines: %s\n", what);
  exit(1);
}

static void on_device(WGPURequestDeviceStatus status, WGPUDevice made,
                      WGPUStringView message, void* a, void* b) {
  (void)status;
  (void)message;
  (void)a;
  (void)b;
  device = made;
}

static void on_error(WGPUDevice const* from, WGPUErrorType type, WGPUStringView message,
                     void* a, void* b) {
  (void)from;
  (void)type;
  (void)a;
  (void)b;
  fprintf(stderr, "%.*s\n", (int)message.length, message.data);
  fail("a kernel must compile");
}

/* The first one that is not OpenGL's, as the player prefers. */
static WGPUAdapter choose(WGPUInstance instance, char* name, size_t size) {
  WGPUAdapter all[16];
  size_t count = wgpuInstanceEnumerateAdapters(instance, NULL, NULL);
  if (count == 0 || count > 16) {
    fail("there must be an adapter");
  }
  wgpuInstanceEnumerateAdapters(instance, NULL, all);
  WGPUAdapter chosen = NULL;
  for (size_t i = 0; i < count; ++i) {
    WGPUAdapterInfo info = {0};
    wgpuAdapterGetInfo(all[i], &info);
    int is_gl = info.backendType == WGPUBackendType_OpenGL ||
                info.backendType == WGPUBackendType_OpenGLES;
    if (chosen == NULL && (!is_gl || i + 1 == count)) {
      chosen = all[i];
      snprintf(name, size, "%.*s", (int)info.device.length, info.device.data);
    }
    wgpuAdapterInfoFreeMembers(info);
  }
  return chosen;
}

static void open_device(WGPUAdapter adapter) {
  const int features[] = {WGPUFeatureName_ShaderF16, (int)WGPUNativeFeature_Subgroup};
  WGPUFeatureName wanted[2];
  WGPUDeviceDescriptor descriptor = {0};
  for (size_t i = 0; i < 2; ++i) {
    if (wgpuAdapterHasFeature(adapter, (WGPUFeatureName)features[i])) {
      wanted[descriptor.requiredFeatureCount++] = (WGPUFeatureName)features[i];
    }
  }
  WGPULimits limits = {0};
  wgpuAdapterGetLimits(adapter, &limits);
  limits.nextInChain = NULL;
  limits.maxImmediateSize = WGPU_LIMIT_U32_UNDEFINED;
  descriptor.requiredFeatures = wanted;
  descriptor.requiredLimits = &limits;
  descriptor.uncapturedErrorCallbackInfo.callback = on_error;
  WGPURequestDeviceCallbackInfo info = {0};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = on_device;
  wgpuAdapterRequestDevice(adapter, &descriptor, info);
  if (device == NULL) {
    fail("a device must be made");
  }
}

static char* content(const char* path) {
  FILE* file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
    fail(path);
  }
  size_t size = (size_t)ftell(file);
  rewind(file);
  char* text = calloc(size + 1, 1);
  if (text == NULL || fread(text, 1, size, file) != size) {
    fail(path);
  }
  fclose(file);
  return text;
}

static void compile(const char* path, const char* access) {
  const WGPUBufferBindingType types[] = {WGPUBufferBindingType_ReadOnlyStorage,
                                         WGPUBufferBindingType_Storage,
                                         WGPUBufferBindingType_Uniform};
  WGPUBindGroupLayoutEntry entries[64] = {0};
  size_t count = strlen(access);
  for (size_t i = 0; i < count && i < 64; ++i) {
    entries[i].binding = (uint32_t)i;
    entries[i].visibility = WGPUShaderStage_Compute;
    entries[i].buffer.type = types[access[i] - '0'];
  }
  WGPUBindGroupLayoutDescriptor group = {.entryCount = count, .entries = entries};
  WGPUBindGroupLayout group_layout = wgpuDeviceCreateBindGroupLayout(device, &group);
  WGPUPipelineLayoutDescriptor layout = {.bindGroupLayoutCount = 1,
                                         .bindGroupLayouts = &group_layout};
  char* text = content(path);
  WGPUShaderSourceWGSL source = {.chain.sType = WGPUSType_ShaderSourceWGSL,
                                 .code = {text, strlen(text)}};
  WGPUShaderModuleDescriptor shader = {.nextInChain = &source.chain};
  WGPUComputePipelineDescriptor pipeline = {0};
  pipeline.layout = wgpuDeviceCreatePipelineLayout(device, &layout);
  pipeline.compute.module = wgpuDeviceCreateShaderModule(device, &shader);
  pipeline.compute.entryPoint = (WGPUStringView){"main", 4};
  /* Kept to the end. */
  (void)wgpuDeviceCreateComputePipeline(device, &pipeline);
  wgpuShaderModuleRelease(pipeline.compute.module);
  free(text);
}

int main(void) {
  char name[256] = "";
  WGPUInstanceDescriptor described = {0};
  open_device(choose(wgpuCreateInstance(&described), name, sizeof(name)));
  char line[4096], path[4000], access[65];
  while (fgets(line, sizeof(line), stdin) != NULL) {
    if (sscanf(line, "%3999s %64s", path, access) == 2) {
      compile(path, access);
    } else {
      printf("ok %s\n", name);
      fflush(stdout);
    }
  }
  return 0;
}
