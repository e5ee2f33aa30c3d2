#include "player/wgpu_api.h"

#include <wgpu.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace etwgpu {
namespace {

WgpuApi g_api;

#ifdef _WIN32
void* open_loaded(const std::string& path) {
  return reinterpret_cast<void*>(GetModuleHandleA(path.c_str()));
}
void* find(void* library, const char* name) {
  return reinterpret_cast<void*>(
      GetProcAddress(reinterpret_cast<HMODULE>(library), name));
}
#else
void* open_loaded(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
}
void* find(void* library, const char* name) { return dlsym(library, name); }
#endif

std::string dotted(uint32_t version) {
  return std::to_string(version >> 24) + "." + std::to_string((version >> 16) & 0xff) +
         "." + std::to_string((version >> 8) & 0xff) + "." +
         std::to_string(version & 0xff);
}

}  // namespace

std::string bind_wgpu(const std::string& path) {
  void* library = open_loaded(path);
  if (library == nullptr) {
    return "native replay: " + path + " must be loaded already";
  }
  WgpuApi api;
#define ETWGPU_FIND(name)                                                \
  api.name = reinterpret_cast<decltype(api.name)>(find(library, #name)); \
  if (api.name == nullptr) {                                             \
    return "native replay: " + path + " must export " #name;             \
  }
  ETWGPU_FUNCTIONS(ETWGPU_FIND)
#undef ETWGPU_FIND
  // Structs differ between versions.
  const uint32_t version = api.wgpuGetVersion();
  if (version != ETWGPU_BUILT_VERSION) {
    return "native replay: wgpu-native must be " + dotted(ETWGPU_BUILT_VERSION) +
           ", got " + dotted(version);
  }
  g_api = api;
  return "";
}

std::string text_of(WGPUStringView view) {
  if (view.data == nullptr) {
    return "";
  }
  const size_t length =
      view.length == WGPU_STRLEN ? std::strlen(view.data) : view.length;
  return std::string(view.data, length);
}

const WgpuApi& wgpu() { return g_api; }

}  // namespace etwgpu
