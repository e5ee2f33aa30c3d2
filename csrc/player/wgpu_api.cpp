#include "player/wgpu_api.h"

#include "player/failure.h"

#include <wgpu.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

namespace etwgpu {
namespace {

WgpuApi g_api;

#ifdef _WIN32
constexpr char kLibrary[] = "wgpu_native.dll";
void* open_loaded(const std::string& path) {
  return reinterpret_cast<void*>(GetModuleHandleA(path.c_str()));
}
void* open_library(const std::string& path) {
  return reinterpret_cast<void*>(LoadLibraryA(path.c_str()));
}
void* whole_process() { return reinterpret_cast<void*>(GetModuleHandleA(nullptr)); }
std::string open_error() { return "error " + std::to_string(GetLastError()); }
void* find(void* library, const char* name) {
  return reinterpret_cast<void*>(
      GetProcAddress(reinterpret_cast<HMODULE>(library), name));
}
std::string sibling_library() { return ""; }
#else
#ifdef __APPLE__
constexpr char kLibrary[] = "libwgpu_native.dylib";
constexpr char kWheelLibrary[] = "libwgpu_native-release.dylib";
#else
constexpr char kLibrary[] = "libwgpu_native.so";
constexpr char kWheelLibrary[] = "libwgpu_native-release.so";
#endif
void* open_loaded(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
}
void* open_library(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}
void* whole_process() { return RTLD_DEFAULT; }
std::string open_error() {
  const char* text = dlerror();
  return text == nullptr ? "no reason" : text;
}
void* find(void* library, const char* name) { return dlsym(library, name); }

// Of the wgpu wheel beside ours: site-packages/executorch_webgpu/lib has this code.
std::string sibling_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&sibling_library), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  return folder + "/../../wgpu/resources/" + kWheelLibrary;
}
#endif

std::string dotted(uint32_t version) {
  return std::to_string(version >> 24) + "." + std::to_string((version >> 16) & 0xff) +
         "." + std::to_string((version >> 8) & 0xff) + "." +
         std::to_string(version & 0xff);
}

// The functions in a library; "" or what is wrong with it.
std::string look_up(void* library, WgpuApi& api) {
#define ETWGPU_FIND(name) \
  api.name = reinterpret_cast<decltype(api.name)>(find(library, #name));
  ETWGPU_FUNCTIONS(ETWGPU_FIND)
  ETWGPU_NATIVE_FUNCTIONS(ETWGPU_FIND)
#undef ETWGPU_FIND
#define ETWGPU_REQUIRE(name)      \
  if (api.name == nullptr) {      \
    return " must export " #name; \
  }
  ETWGPU_FUNCTIONS(ETWGPU_REQUIRE)
#undef ETWGPU_REQUIRE
  // Structs differ between versions.
  if (api.is_native() && api.wgpuGetVersion() != ETWGPU_BUILT_VERSION) {
    return " must be wgpu-native " + dotted(ETWGPU_BUILT_VERSION) + ", got " +
           dotted(api.wgpuGetVersion());
  }
  // Dawn had this before webgpu.h was settled, and structs of its own.
  if (find(library, "wgpuBufferMapAsync2") != nullptr) {
    return " must follow the webgpu.h of 2025 or later, got an older one";
  }
  api.has_early_features =
      !api.is_native() && find(library, "wgpuGetInstanceFeatures") == nullptr;
  return "";
}

// Throws Failure if a library that was asked for, or found first, cannot be used.
void open_first() {
  WgpuApi api;
  std::string problem;
  if (find(whole_process(), "wgpuCreateInstance") != nullptr) {
    problem = look_up(whole_process(), api);
    if (!problem.empty()) {
      throw Failure(Code::DelegateInvalidHandle,
                    "WebGPU: the library that is linked" + problem);
    }
    g_api = api;
    return;
  }
  std::vector<std::string> places = {kLibrary, sibling_library()};
  const char* asked = std::getenv("ET_WEBGPU_LIBRARY");
  if (asked != nullptr && asked[0] != '\0') {
    places = {asked};
  }
  std::string tried;
  for (const std::string& place : places) {
    void* library = place.empty() ? nullptr : open_library(place);
    if (library == nullptr) {
      tried += (tried.empty() ? "" : "; ") + open_error();
      continue;
    }
    problem = look_up(library, api);
    if (!problem.empty()) {
      throw Failure(Code::DelegateInvalidHandle, "WebGPU: " + place + problem);
    }
    g_api = api;
    return;
  }
  throw Failure(Code::DelegateInvalidHandle,
                "WebGPU: a library must be linked or named by ET_WEBGPU_LIBRARY, got "
                "none (" +
                    tried + ")");
}

}  // namespace

std::string bind_wgpu(const std::string& path) {
  void* library = open_loaded(path);
  if (library == nullptr) {
    return "native replay: " + path + " must be loaded already";
  }
  WgpuApi api;
  api.wgpuGetVersion =
      reinterpret_cast<decltype(api.wgpuGetVersion)>(find(library, "wgpuGetVersion"));
  if (!api.is_native()) {
    return "native replay: " + path + " must export wgpuGetVersion";
  }
  if (api.wgpuGetVersion() != ETWGPU_BUILT_VERSION) {
    return "native replay: wgpu-native must be " + dotted(ETWGPU_BUILT_VERSION) +
           ", got " + dotted(api.wgpuGetVersion());
  }
  const std::string problem = look_up(library, api);
  if (!problem.empty()) {
    return "native replay: " + path + problem;
  }
  g_api = api;
  return "";
}

void open_wgpu() {
  static std::mutex mutex;
  static bool is_open = false;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_open) {
    open_first();
    is_open = true;
  }
}

void leave_native_out() {
#define ETWGPU_FORGET(name) g_api.name = nullptr;
  ETWGPU_NATIVE_FUNCTIONS(ETWGPU_FORGET)
#undef ETWGPU_FORGET
}

std::string text_of(WGPUStringView view) {
  if (view.data == nullptr) {
    return "";
  }
  const size_t length =
      view.length == WGPU_STRLEN ? std::strlen(view.data) : view.length;
  return std::string(view.data, length);
}

WGPUStringView string_view(const std::string& text) {
  return {text.data(), text.size()};
}

const WgpuApi& wgpu() { return g_api; }

}  // namespace etwgpu
