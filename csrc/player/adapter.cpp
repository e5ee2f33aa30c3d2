#include "player/adapter.h"

#include "player/callback.h"
#include "player/failure.h"
#include "player/owned.h"
#include "player/wgpu_api.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace etwgpu {
namespace {

constexpr char kInstall[] =
    "install a Vulkan driver, or a software one"
    " (Debian and Ubuntu: apt install mesa-vulkan-drivers)";

struct AdapterAnswer {
  WGPUAdapter adapter = nullptr;
  std::atomic<bool> is_done{false};
};

void receive_adapter(WGPURequestAdapterStatus status, WGPUAdapter adapter,
                     WGPUStringView, void* userdata, void*) noexcept {
  const auto answer = take_back<AdapterAnswer>(userdata);
  answer->adapter = status == WGPURequestAdapterStatus_Success ? adapter : nullptr;
  answer->is_done.store(true, std::memory_order_release);
}

// The one that the library would take; null if it has none.
WGPUAdapter request(WGPUPowerPreference preference, bool is_fallback) {
  constexpr std::chrono::seconds kPatience(60);
  WGPURequestAdapterOptions options = {};
  options.featureLevel = WGPUFeatureLevel_Core;
  options.powerPreference = preference;
  options.forceFallbackAdapter = is_fallback;
  const auto answer = std::make_shared<AdapterAnswer>();
  WGPURequestAdapterCallbackInfo info = {};
  info.mode = WGPUCallbackMode_AllowSpontaneous;
  info.callback = &receive_adapter;
  info.userdata1 = lend(answer);
  wgpu().wgpuInstanceRequestAdapter(instance(), &options, info);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!answer->is_done.load(std::memory_order_acquire) &&
         std::chrono::steady_clock::now() < end) {
    wgpu().wgpuInstanceProcessEvents(instance());
    std::this_thread::yield();
  }
  return answer->adapter;
}

std::vector<WGPUAdapter> all_adapters() {
  std::vector<WGPUAdapter> found;
  if (wgpu().wgpuInstanceEnumerateAdapters != nullptr) {
    found.resize(wgpu().wgpuInstanceEnumerateAdapters(instance(), nullptr, nullptr));
    found.resize(
        wgpu().wgpuInstanceEnumerateAdapters(instance(), nullptr, found.data()));
    return found;
  }
  for (const auto& [preference, is_fallback] :
       {std::pair(WGPUPowerPreference_HighPerformance, false),
        std::pair(WGPUPowerPreference_LowPower, false),
        std::pair(WGPUPowerPreference_Undefined, true)}) {
    const WGPUAdapter adapter = request(preference, is_fallback);
    if (adapter != nullptr) {
      found.push_back(adapter);
    }
  }
  return found;
}

const char* type_name(WGPUAdapterType type) {
  switch (type) {
    case WGPUAdapterType_DiscreteGPU:
      return "DiscreteGPU";
    case WGPUAdapterType_IntegratedGPU:
      return "IntegratedGPU";
    case WGPUAdapterType_CPU:
      return "CPU";
    default:
      return "Unknown";
  }
}

const char* backend_name(WGPUBackendType backend) {
  switch (backend) {
    case WGPUBackendType_Vulkan:
      return "Vulkan";
    case WGPUBackendType_Metal:
      return "Metal";
    case WGPUBackendType_D3D12:
      return "D3D12";
    case WGPUBackendType_D3D11:
      return "D3D11";
    case WGPUBackendType_OpenGL:
      return "OpenGL";
    case WGPUBackendType_OpenGLES:
      return "OpenGLES";
    default:
      return "Unknown";
  }
}

Adapter described(WGPUAdapter handle) {
  Adapter adapter;
  adapter.handle = OwnAdapter(handle);
  WGPUAdapterInfo info = {};
  if (wgpu().wgpuAdapterGetInfo(handle, &info) == WGPUStatus_Success) {
    adapter.type = info.adapterType;
    adapter.backend = info.backendType;
    adapter.name = text_of(info.device) + " (" + type_name(adapter.type) + ") via " +
                   backend_name(adapter.backend);
    wgpu().wgpuAdapterInfoFreeMembers(info);
  }
  return adapter;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::tuple<int, int, bool> rank(const Adapter& adapter) {
  const bool is_modern = adapter.backend == WGPUBackendType_Vulkan ||
                         adapter.backend == WGPUBackendType_Metal ||
                         adapter.backend == WGPUBackendType_D3D12;
  const int type = adapter.type == WGPUAdapterType_DiscreteGPU     ? 0
                   : adapter.type == WGPUAdapterType_IntegratedGPU ? 1
                   : adapter.type == WGPUAdapterType_CPU           ? 3
                                                                   : 2;
  // Of two software drivers, this is the slower one by far.
  const bool is_slow = lower(adapter.name).find("swiftshader") != std::string::npos;
  return {is_modern ? 0 : 1, type, is_slow};
}

}  // namespace

WGPUInstance instance() {
  static const WGPUInstance made = [] {
    WGPUInstanceDescriptor descriptor = {};
    return wgpu().wgpuCreateInstance(&descriptor);
  }();
  if (made == nullptr) {
    throw Failure(
        Code::DelegateInvalidHandle,
        std::string("WebGPU: an instance must be made, got none; ") + kInstall);
  }
  return made;
}

Adapter choose_adapter(const std::string& part) {
  std::vector<Adapter> matching;
  std::string names;
  for (const WGPUAdapter handle : all_adapters()) {
    Adapter adapter = described(handle);
    names += (names.empty() ? "" : ", ") + adapter.name;
    if (lower(adapter.name).find(lower(part)) != std::string::npos) {
      matching.push_back(std::move(adapter));
    }
  }
  if (names.empty()) {
    throw Failure(Code::DelegateInvalidHandle,
                  std::string("there must be a GPU adapter, got none; ") + kInstall);
  }
  if (matching.empty()) {
    throw Failure(Code::DelegateInvalidHandle, "adapter: must be part of one of [" +
                                                   names + "], got '" + part + "'");
  }
  return std::move(*std::min_element(
      matching.begin(), matching.end(),
      [](const Adapter& a, const Adapter& b) { return rank(a) < rank(b); }));
}

}  // namespace etwgpu
