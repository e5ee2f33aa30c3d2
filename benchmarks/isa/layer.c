// A Vulkan layer that lets WebGPU implementations use RADV's null device.
//
// Mesa's RADV has a device that compiles for any Radeon and runs nothing
// (RADV_FORCE_FAMILY). The layer answers for what that device lacks, passes on what it
// can do, and writes what it sees into the folder $ISA_OUT:
//
//   NNNN.spv, .stats, .asm   of every compute pipeline: its SPIR-V, what the compiler
//                            counts, and the machine code
//   log.txt                  a line per device, pipeline and dispatch; of a dispatch
//   its
//                            grid and, per binding, the bytes bound and, of small
//                            buffers, their content
//
// Answered for, and why:
//   memory types             it has none, and allocators refuse a device without
//   command buffers          it cannot record; copies are done here and now, because
//                            what a kernel's loops depend on arrives by them
//   semaphores, fences       it has none that work; all work is done when submitted

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define EXPORT __attribute__((visibility("default")))
#define CALL static VKAPI_ATTR

enum { PATH_BYTES = 4096, MAX_BINDINGS = 32, SLOTS = 1 << 16 };
// Uniforms, and storage that holds lengths, are smaller; tensors are larger.
enum { SHOWN_BYTES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE* log_file;
static int pipeline_count;

typedef struct {
  VkDeviceSize size, offset;
  char* memory;  // of the allocation it is bound to
} Buffer;

typedef struct {
  VkDescriptorBufferInfo bound[MAX_BINDINGS];
  int is_written[MAX_BINDINGS];
} Set;

typedef struct {
  int pipeline;
  Set* set;
} Commands;

// By handle. Entries are never removed: a handle that is used again is overwritten.
typedef struct {
  uint64_t handle;
  void* value;
} Slot;
typedef Slot Table[SLOTS];
static Table modules, pipelines, buffers, memories, sets, commands;

static Slot* slot(Slot* table, uint64_t handle) {
  uint64_t i = handle * 0x9E3779B97F4A7C15ull >> 48;
  while (table[i].handle && table[i].handle != handle) i = (i + 1) % SLOTS;
  return &table[i];
}

static void* lookup(Slot* table, uint64_t handle) {
  pthread_mutex_lock(&lock);
  void* value = slot(table, handle)->value;
  pthread_mutex_unlock(&lock);
  return value;
}

static void remember(Slot* table, uint64_t handle, void* value) {
  pthread_mutex_lock(&lock);
  *slot(table, handle) = (Slot){handle, value};
  pthread_mutex_unlock(&lock);
}

#define HANDLE(x) ((uint64_t)(uintptr_t)(x))

// One of each is alive at a time in the programs that this is for.
static VkInstance instance;
static VkDevice device;
static PFN_vkGetInstanceProcAddr next_of_instance;
static PFN_vkGetDeviceProcAddr next_of_device;
#define NEXT(name) ((PFN_##name)next_of_device(device, #name))
#define INSTANCE_NEXT(name) ((PFN_##name)next_of_instance(instance, #name))

static FILE* open_part(const char* name) {
  char path[PATH_BYTES];
  const char* folder = getenv("ISA_OUT");
  snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", name);
  FILE* file = fopen(path, "w");
  if (!file) {
    fprintf(stderr, "isa: cannot write %s\n", path);
    abort();
  }
  return file;
}

CALL VkResult VKAPI_CALL CreateInstance(const VkInstanceCreateInfo* info,
                                        const VkAllocationCallbacks* with,
                                        VkInstance* made) {
  VkLayerInstanceCreateInfo* link = (void*)info->pNext;
  while (link && !(link->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO &&
                   link->function == VK_LAYER_LINK_INFO))
    link = (void*)link->pNext;
  if (!link) return VK_ERROR_INITIALIZATION_FAILED;
  next_of_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;
  VkResult result = ((PFN_vkCreateInstance)next_of_instance(NULL, "vkCreateInstance"))(
      info, with, made);
  if (result == VK_SUCCESS) instance = *made;
  if (!log_file) log_file = open_part("log.txt");
  return result;
}

// As asked for, and with the extension that shows what the compiler makes.
CALL VkResult VKAPI_CALL CreateDevice(VkPhysicalDevice physical,
                                      const VkDeviceCreateInfo* info,
                                      const VkAllocationCallbacks* with,
                                      VkDevice* made) {
  VkLayerDeviceCreateInfo* link = (void*)info->pNext;
  while (link && !(link->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO &&
                   link->function == VK_LAYER_LINK_INFO))
    link = (void*)link->pNext;
  if (!link) return VK_ERROR_INITIALIZATION_FAILED;
  next_of_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
  link->u.pLayerInfo = link->u.pLayerInfo->pNext;

  uint32_t count = info->enabledExtensionCount;
  const char** names = malloc((count + 1) * sizeof *names);
  if (count) memcpy(names, info->ppEnabledExtensionNames, count * sizeof *names);
  names[count] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR feature = {
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
      (void*)info->pNext, VK_TRUE};
  VkDeviceCreateInfo wanted = *info;
  wanted.pNext = &feature;
  wanted.enabledExtensionCount = count + 1;
  wanted.ppEnabledExtensionNames = names;
  VkResult result = INSTANCE_NEXT(vkCreateDevice)(physical, &wanted, with, made);
  free(names);
  if (result != VK_SUCCESS) return result;
  device = *made;
  VkPhysicalDeviceProperties properties;
  INSTANCE_NEXT(vkGetPhysicalDeviceProperties)(physical, &properties);
  fprintf(log_file, "device %s\n", properties.deviceName);
  fflush(log_file);
  return result;
}

typedef struct {
  size_t size;
  void* code;
} Module;

CALL VkResult VKAPI_CALL CreateShaderModule(VkDevice of,
                                            const VkShaderModuleCreateInfo* info,
                                            const VkAllocationCallbacks* with,
                                            VkShaderModule* made) {
  VkResult result = NEXT(vkCreateShaderModule)(of, info, with, made);
  if (result != VK_SUCCESS) return result;
  Module* module = malloc(sizeof *module);
  *module = (Module){info->codeSize, malloc(info->codeSize)};
  memcpy(module->code, info->pCode, info->codeSize);
  remember(modules, HANDLE(*made), module);
  return result;
}

static FILE* open_kernel(int id, const char* suffix) {
  char name[32];
  snprintf(name, sizeof name, "%04d.%s", id, suffix);
  return open_part(name);
}

static void write_code(const VkPipelineShaderStageCreateInfo* stage, int id) {
  Module* module = lookup(modules, HANDLE(stage->module));
  Module in_place;
  // Instead of a module, a stage may bring its code along.
  for (const VkBaseInStructure* x = stage->pNext; x; x = x->pNext)
    if (x->sType == VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO) {
      const VkShaderModuleCreateInfo* info = (const void*)x;
      in_place = (Module){info->codeSize, (void*)info->pCode};
      module = &in_place;
    }
  FILE* file = open_kernel(id, "spv");
  if (module) fwrite(module->code, 1, module->size, file);
  fclose(file);
}

static void write_statistics(const VkPipelineExecutableInfoKHR* which, int id) {
  FILE* file = open_kernel(id, "stats");
  VkPipelineInfoKHR all = {VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, NULL, which->pipeline};
  VkPipelineExecutablePropertiesKHR properties = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
  uint32_t count = 1;
  NEXT(vkGetPipelineExecutablePropertiesKHR)(device, &all, &count, &properties);
  fprintf(file, "Wave size\t%u\n", properties.subgroupSize);
  NEXT(vkGetPipelineExecutableStatisticsKHR)(device, which, &count, NULL);
  VkPipelineExecutableStatisticKHR* found = calloc(count + 1, sizeof *found);
  for (uint32_t i = 0; i < count; i++)
    found[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
  NEXT(vkGetPipelineExecutableStatisticsKHR)(device, which, &count, found);
  for (uint32_t i = 0; i < count; i++)
    if (found[i].format != VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR)
      fprintf(file, "%s\t%llu\n", found[i].name,
              (unsigned long long)found[i].value.u64);
  free(found);
  fclose(file);
}

static void write_assembly(const VkPipelineExecutableInfoKHR* which, int id) {
  uint32_t count = 0;
  NEXT(vkGetPipelineExecutableInternalRepresentationsKHR)(device, which, &count, NULL);
  VkPipelineExecutableInternalRepresentationKHR* found =
      calloc(count + 1, sizeof *found);
  for (uint32_t i = 0; i < count; i++)
    found[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
  // Twice: the first call gives the sizes.
  NEXT(vkGetPipelineExecutableInternalRepresentationsKHR)(device, which, &count, found);
  for (uint32_t i = 0; i < count; i++)
    found[i].pData = calloc(1, found[i].dataSize + 1);
  NEXT(vkGetPipelineExecutableInternalRepresentationsKHR)(device, which, &count, found);
  for (uint32_t i = 0; i < count; i++) {
    // The others are the compiler's own representations, before the machine code.
    if (!strstr(found[i].name, "NIR") && !strstr(found[i].name, "ACO")) {
      FILE* file = open_kernel(id, "asm");
      fputs(found[i].pData, file);
      fclose(file);
    }
    free(found[i].pData);
  }
  free(found);
}

CALL VkResult VKAPI_CALL
CreateComputePipelines(VkDevice of, VkPipelineCache cache, uint32_t count,
                       const VkComputePipelineCreateInfo* infos,
                       const VkAllocationCallbacks* with, VkPipeline* made) {
  VkComputePipelineCreateInfo* wanted = malloc(count * sizeof *wanted);
  memcpy(wanted, infos, count * sizeof *wanted);
  for (uint32_t i = 0; i < count; i++)
    wanted[i].flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                       VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
  VkResult result =
      NEXT(vkCreateComputePipelines)(of, cache, count, wanted, with, made);
  free(wanted);
  if (result != VK_SUCCESS) return result;
  for (uint32_t i = 0; i < count; i++) {
    pthread_mutex_lock(&lock);
    int id = pipeline_count++;
    pthread_mutex_unlock(&lock);
    VkPipelineExecutableInfoKHR which = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                         NULL, made[i], 0};
    write_code(&infos[i].stage, id);
    write_statistics(&which, id);
    write_assembly(&which, id);
    fprintf(log_file, "pipeline %d flags %x\n", id, infos[i].flags);
    fflush(log_file);
    // Never NULL, which is what an unknown handle gives.
    remember(pipelines, HANDLE(made[i]), (void*)(intptr_t)(id + 1));
  }
  return result;
}

// As of a discrete GPU: its own memory, and the host's, cached or not.
static void set_memory_types(VkPhysicalDeviceMemoryProperties* answer) {
  const VkMemoryPropertyFlags host =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  *answer = (VkPhysicalDeviceMemoryProperties){
      .memoryTypeCount = 3,
      .memoryTypes = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
                      {host, 1},
                      {host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 1}},
      .memoryHeapCount = 2,
      .memoryHeaps = {{16ull << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {16ull << 30, 0}},
  };
}
enum { ALL_TYPES = 7 };

CALL void VKAPI_CALL GetPhysicalDeviceMemoryProperties(
    VkPhysicalDevice of, VkPhysicalDeviceMemoryProperties* answer) {
  (void)of;
  set_memory_types(answer);
}

CALL void VKAPI_CALL GetPhysicalDeviceMemoryProperties2(
    VkPhysicalDevice of, VkPhysicalDeviceMemoryProperties2* answer) {
  (void)of;
  set_memory_types(&answer->memoryProperties);
  for (VkBaseOutStructure* x = answer->pNext; x; x = x->pNext)
    if (x->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) {
      VkPhysicalDeviceMemoryBudgetPropertiesEXT* budget = (void*)x;
      memset(budget->heapUsage, 0, sizeof budget->heapUsage);
      for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++)
        budget->heapBudget[i] = i < 2 ? 16ull << 30 : 0;
    }
}

CALL void VKAPI_CALL GetBufferMemoryRequirements(VkDevice of, VkBuffer buffer,
                                                 VkMemoryRequirements* answer) {
  NEXT(vkGetBufferMemoryRequirements)(of, buffer, answer);
  answer->memoryTypeBits = ALL_TYPES;
}

CALL void VKAPI_CALL
GetBufferMemoryRequirements2(VkDevice of, const VkBufferMemoryRequirementsInfo2* info,
                             VkMemoryRequirements2* answer) {
  NEXT(vkGetBufferMemoryRequirements2)(of, info, answer);
  answer->memoryRequirements.memoryTypeBits = ALL_TYPES;
}

CALL void VKAPI_CALL GetDeviceBufferMemoryRequirements(
    VkDevice of, const VkDeviceBufferMemoryRequirements* info,
    VkMemoryRequirements2* answer) {
  NEXT(vkGetDeviceBufferMemoryRequirements)(of, info, answer);
  answer->memoryRequirements.memoryTypeBits = ALL_TYPES;
}

CALL void VKAPI_CALL GetImageMemoryRequirements(VkDevice of, VkImage image,
                                                VkMemoryRequirements* answer) {
  NEXT(vkGetImageMemoryRequirements)(of, image, answer);
  answer->memoryTypeBits = ALL_TYPES;
}

CALL void VKAPI_CALL
GetImageMemoryRequirements2(VkDevice of, const VkImageMemoryRequirementsInfo2* info,
                            VkMemoryRequirements2* answer) {
  NEXT(vkGetImageMemoryRequirements2)(of, info, answer);
  answer->memoryRequirements.memoryTypeBits = ALL_TYPES;
}

// The device allocates from the host, whatever the type, and can map it all.
CALL VkResult VKAPI_CALL AllocateMemory(VkDevice of, const VkMemoryAllocateInfo* info,
                                        const VkAllocationCallbacks* with,
                                        VkDeviceMemory* made) {
  VkMemoryAllocateInfo wanted = *info;
  wanted.memoryTypeIndex = 0;
  VkResult result = NEXT(vkAllocateMemory)(of, &wanted, with, made);
  if (result != VK_SUCCESS) return result;
  void* address = NULL;
  result = NEXT(vkMapMemory)(of, *made, 0, VK_WHOLE_SIZE, 0, &address);
  remember(memories, HANDLE(*made), address);
  return result;
}

CALL VkResult VKAPI_CALL MapMemory(VkDevice of, VkDeviceMemory memory,
                                   VkDeviceSize offset, VkDeviceSize size,
                                   VkMemoryMapFlags flags, void** address) {
  (void)of, (void)size, (void)flags;
  *address = (char*)lookup(memories, HANDLE(memory)) + offset;
  return VK_SUCCESS;
}

CALL void VKAPI_CALL UnmapMemory(VkDevice of, VkDeviceMemory memory) {
  (void)of, (void)memory;
}

CALL VkResult VKAPI_CALL CreateBuffer(VkDevice of, const VkBufferCreateInfo* info,
                                      const VkAllocationCallbacks* with,
                                      VkBuffer* made) {
  VkResult result = NEXT(vkCreateBuffer)(of, info, with, made);
  if (result != VK_SUCCESS) return result;
  Buffer* buffer = calloc(1, sizeof *buffer);
  buffer->size = info->size;
  remember(buffers, HANDLE(*made), buffer);
  return result;
}

static void bind(VkBuffer which, VkDeviceMemory memory, VkDeviceSize offset) {
  Buffer* buffer = lookup(buffers, HANDLE(which));
  buffer->memory = lookup(memories, HANDLE(memory));
  buffer->offset = offset;
}

CALL VkResult VKAPI_CALL BindBufferMemory(VkDevice of, VkBuffer buffer,
                                          VkDeviceMemory memory, VkDeviceSize offset) {
  bind(buffer, memory, offset);
  return NEXT(vkBindBufferMemory)(of, buffer, memory, offset);
}

CALL VkResult VKAPI_CALL BindBufferMemory2(VkDevice of, uint32_t count,
                                           const VkBindBufferMemoryInfo* infos) {
  for (uint32_t i = 0; i < count; i++)
    bind(infos[i].buffer, infos[i].memory, infos[i].memoryOffset);
  return NEXT(vkBindBufferMemory2)(of, count, infos);
}

static char* content(VkBuffer which, VkDeviceSize offset) {
  Buffer* buffer = lookup(buffers, HANDLE(which));
  return buffer && buffer->memory ? buffer->memory + buffer->offset + offset : NULL;
}

// WebGPU binds buffers one by one. Sets beyond the first are not looked at.
CALL void VKAPI_CALL UpdateDescriptorSets(VkDevice of, uint32_t count,
                                          const VkWriteDescriptorSet* writes,
                                          uint32_t copy_count,
                                          const VkCopyDescriptorSet* copies) {
  for (uint32_t i = 0; i < count; i++) {
    Set* set = lookup(sets, HANDLE(writes[i].dstSet));
    if (!set) remember(sets, HANDLE(writes[i].dstSet), set = calloc(1, sizeof *set));
    for (uint32_t k = 0; k < writes[i].descriptorCount; k++) {
      uint32_t binding = writes[i].dstBinding + k;
      if (!writes[i].pBufferInfo || binding >= MAX_BINDINGS) continue;
      set->bound[binding] = writes[i].pBufferInfo[k];
      set->is_written[binding] = 1;
    }
  }
  NEXT(vkUpdateDescriptorSets)(of, count, writes, copy_count, copies);
}

static Commands* commands_of(VkCommandBuffer buffer) {
  Commands* found = lookup(commands, HANDLE(buffer));
  if (!found) remember(commands, HANDLE(buffer), found = calloc(1, sizeof *found));
  return found;
}

CALL void VKAPI_CALL CmdBindPipeline(VkCommandBuffer to, VkPipelineBindPoint point,
                                     VkPipeline pipeline) {
  (void)point;
  commands_of(to)->pipeline = (int)(intptr_t)lookup(pipelines, HANDLE(pipeline)) - 1;
}

CALL void VKAPI_CALL CmdBindDescriptorSets(VkCommandBuffer to,
                                           VkPipelineBindPoint point,
                                           VkPipelineLayout layout, uint32_t first,
                                           uint32_t count, const VkDescriptorSet* bound,
                                           uint32_t offset_count,
                                           const uint32_t* offsets) {
  (void)point, (void)layout, (void)offset_count, (void)offsets;
  if (first == 0 && count) commands_of(to)->set = lookup(sets, HANDLE(bound[0]));
}

// " SIZE:HEX" or, of a large buffer, " SIZE:".
static void write_binding(const VkDescriptorBufferInfo* bound) {
  Buffer* buffer = lookup(buffers, HANDLE(bound->buffer));
  VkDeviceSize size = bound->range;
  if (size == VK_WHOLE_SIZE) size = buffer->size - bound->offset;
  fprintf(log_file, " %llu:", (unsigned long long)size);
  const unsigned char* bytes = (void*)content(bound->buffer, bound->offset);
  for (VkDeviceSize i = 0; bytes && size <= SHOWN_BYTES && i < size; i++)
    fprintf(log_file, "%02x", bytes[i]);
}

CALL void VKAPI_CALL CmdDispatch(VkCommandBuffer to, uint32_t x, uint32_t y,
                                 uint32_t z) {
  const Commands* state = commands_of(to);
  fprintf(log_file, "dispatch %d %u %u %u", state->pipeline, x, y, z);
  for (int i = 0; state->set && i < MAX_BINDINGS; i++)
    if (state->set->is_written[i]) write_binding(&state->set->bound[i]);
  fprintf(log_file, "\n");
  fflush(log_file);
}

CALL void VKAPI_CALL CmdCopyBuffer(VkCommandBuffer to, VkBuffer source, VkBuffer target,
                                   uint32_t count, const VkBufferCopy* regions) {
  (void)to;
  for (uint32_t i = 0; i < count; i++) {
    const char* from = content(source, regions[i].srcOffset);
    char* into = content(target, regions[i].dstOffset);
    if (from && into) memmove(into, from, regions[i].size);
  }
}

static void ignored_command(void) {}

CALL VkResult VKAPI_CALL BeginCommandBuffer(VkCommandBuffer buffer,
                                            const VkCommandBufferBeginInfo* info) {
  (void)info;
  *commands_of(buffer) = (Commands){0};
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL EndCommandBuffer(VkCommandBuffer buffer) {
  (void)buffer;
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL ResetCommandBuffer(VkCommandBuffer buffer,
                                            VkCommandBufferResetFlags flags) {
  (void)buffer, (void)flags;
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL ResetCommandPool(VkDevice of, VkCommandPool pool,
                                          VkCommandPoolResetFlags flags) {
  (void)of, (void)pool, (void)flags;
  return VK_SUCCESS;
}

// A semaphore or a fence is the address of its value.
#define VALUE(handle) (*(uint64_t*)(uintptr_t)(handle))

static void raise_to(VkSemaphore semaphore, uint64_t value) {
  if (value > VALUE(semaphore)) VALUE(semaphore) = value;
}

CALL VkResult VKAPI_CALL CreateSemaphore(VkDevice of, const VkSemaphoreCreateInfo* info,
                                         const VkAllocationCallbacks* with,
                                         VkSemaphore* made) {
  (void)of, (void)with;
  *made = (VkSemaphore)(uintptr_t)calloc(1, sizeof(uint64_t));
  for (const VkBaseInStructure* x = info->pNext; x; x = x->pNext)
    if (x->sType == VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO)
      VALUE(*made) = ((const VkSemaphoreTypeCreateInfo*)x)->initialValue;
  return VK_SUCCESS;
}

CALL void VKAPI_CALL DestroySemaphore(VkDevice of, VkSemaphore semaphore,
                                      const VkAllocationCallbacks* with) {
  (void)of, (void)with;
  free((void*)(uintptr_t)semaphore);
}

CALL VkResult VKAPI_CALL GetSemaphoreCounterValue(VkDevice of, VkSemaphore semaphore,
                                                  uint64_t* value) {
  (void)of;
  *value = VALUE(semaphore);
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL WaitSemaphores(VkDevice of, const VkSemaphoreWaitInfo* info,
                                        uint64_t timeout) {
  (void)of, (void)info, (void)timeout;
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL SignalSemaphore(VkDevice of,
                                         const VkSemaphoreSignalInfo* info) {
  (void)of;
  raise_to(info->semaphore, info->value);
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL QueueSubmit(VkQueue queue, uint32_t count,
                                     const VkSubmitInfo* infos, VkFence fence) {
  (void)queue;
  for (uint32_t i = 0; i < count; i++)
    for (const VkBaseInStructure* x = infos[i].pNext; x; x = x->pNext)
      if (x->sType == VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO) {
        const VkTimelineSemaphoreSubmitInfo* values = (const void*)x;
        for (uint32_t k = 0; k < values->signalSemaphoreValueCount; k++)
          raise_to(infos[i].pSignalSemaphores[k], values->pSignalSemaphoreValues[k]);
      }
  if (fence) VALUE(fence) = 1;
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL QueueSubmit2(VkQueue queue, uint32_t count,
                                      const VkSubmitInfo2* infos, VkFence fence) {
  (void)queue;
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t k = 0; k < infos[i].signalSemaphoreInfoCount; k++)
      raise_to(infos[i].pSignalSemaphoreInfos[k].semaphore,
               infos[i].pSignalSemaphoreInfos[k].value);
  if (fence) VALUE(fence) = 1;
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL CreateFence(VkDevice of, const VkFenceCreateInfo* info,
                                     const VkAllocationCallbacks* with, VkFence* made) {
  (void)of, (void)with;
  *made = (VkFence)(uintptr_t)calloc(1, sizeof(uint64_t));
  VALUE(*made) = info->flags & VK_FENCE_CREATE_SIGNALED_BIT;
  return VK_SUCCESS;
}

CALL void VKAPI_CALL DestroyFence(VkDevice of, VkFence fence,
                                  const VkAllocationCallbacks* with) {
  (void)of, (void)with;
  free((void*)(uintptr_t)fence);
}

CALL VkResult VKAPI_CALL ResetFences(VkDevice of, uint32_t count,
                                     const VkFence* fences) {
  (void)of;
  for (uint32_t i = 0; i < count; i++) VALUE(fences[i]) = 0;
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL GetFenceStatus(VkDevice of, VkFence fence) {
  (void)of;
  return VALUE(fence) ? VK_SUCCESS : VK_NOT_READY;
}

CALL VkResult VKAPI_CALL WaitForFences(VkDevice of, uint32_t count,
                                       const VkFence* fences, VkBool32 all,
                                       uint64_t timeout) {
  (void)of, (void)count, (void)fences, (void)all, (void)timeout;
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL QueueWaitIdle(VkQueue queue) {
  (void)queue;
  return VK_SUCCESS;
}

CALL VkResult VKAPI_CALL DeviceWaitIdle(VkDevice of) {
  (void)of;
  return VK_SUCCESS;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
isa_GetInstanceProcAddr(VkInstance of, const char* name);
EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL isa_GetDeviceProcAddr(VkDevice of,
                                                                      const char* name);

static const struct {
  const char* name;
  void* function;
} ANSWERED[] = {
#define ANSWER(name) {"vk" #name, (void*)name}
    {"vkGetInstanceProcAddr", (void*)isa_GetInstanceProcAddr},
    {"vkGetDeviceProcAddr", (void*)isa_GetDeviceProcAddr},
    ANSWER(CreateInstance),
    ANSWER(CreateDevice),
    ANSWER(CreateShaderModule),
    ANSWER(CreateComputePipelines),
    ANSWER(GetPhysicalDeviceMemoryProperties),
    ANSWER(GetPhysicalDeviceMemoryProperties2),
    ANSWER(GetBufferMemoryRequirements),
    ANSWER(GetBufferMemoryRequirements2),
    ANSWER(GetDeviceBufferMemoryRequirements),
    ANSWER(GetImageMemoryRequirements),
    ANSWER(GetImageMemoryRequirements2),
    ANSWER(AllocateMemory),
    ANSWER(MapMemory),
    ANSWER(UnmapMemory),
    ANSWER(CreateBuffer),
    ANSWER(BindBufferMemory),
    ANSWER(BindBufferMemory2),
    ANSWER(UpdateDescriptorSets),
    ANSWER(CmdBindPipeline),
    ANSWER(CmdBindDescriptorSets),
    ANSWER(CmdDispatch),
    ANSWER(CmdCopyBuffer),
    ANSWER(BeginCommandBuffer),
    ANSWER(EndCommandBuffer),
    ANSWER(ResetCommandBuffer),
    ANSWER(ResetCommandPool),
    ANSWER(CreateSemaphore),
    ANSWER(DestroySemaphore),
    ANSWER(GetSemaphoreCounterValue),
    ANSWER(WaitSemaphores),
    ANSWER(SignalSemaphore),
    ANSWER(QueueSubmit),
    ANSWER(QueueSubmit2),
    ANSWER(CreateFence),
    ANSWER(DestroyFence),
    ANSWER(ResetFences),
    ANSWER(GetFenceStatus),
    ANSWER(WaitForFences),
    ANSWER(QueueWaitIdle),
    ANSWER(DeviceWaitIdle),
};

// Functions that became part of Vulkan are asked for by their older names too.
static void* answer(const char* name) {
  size_t length = strlen(name);
  if (length > 3 && !strcmp(name + length - 3, "KHR")) length -= 3;
  for (size_t i = 0; i < sizeof ANSWERED / sizeof *ANSWERED; i++)
    if (strlen(ANSWERED[i].name) == length && !strncmp(ANSWERED[i].name, name, length))
      return ANSWERED[i].function;
  return NULL;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
isa_GetDeviceProcAddr(VkDevice of, const char* name) {
  void* found = answer(name);
  if (found) return found;
  PFN_vkVoidFunction next = next_of_device(of, name);
  return next && !strncmp(name, "vkCmd", 5) ? (PFN_vkVoidFunction)ignored_command
                                            : next;
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL
isa_GetInstanceProcAddr(VkInstance of, const char* name) {
  void* found = answer(name);
  if (found) return found;
  return of ? next_of_instance(of, name) : NULL;
}
