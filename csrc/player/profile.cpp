#include "player/profile.h"

#include "player/device.h"
#include "player/failure.h"
#include "player/plans.h"

#include <cstdint>
#include <string>

namespace etwgpu {
namespace {

// "" if the device fits.
std::string shortcoming(const PlanProfile& profile, const DeviceCaps& caps,
                        const Allowed& allowed) {
  const struct {
    const char* name;
    bool is_wanted;
    bool is_there;
    bool is_allowed;
  } features[] = {
      {"cpu-adapter", profile.is_cpu, caps.is_cpu, allowed.cpu_kernels},
      {"shader-f16", profile.f16, caps.f16, allowed.f16},
      {"subgroups", profile.subgroups, caps.subgroups, allowed.subgroups},
  };
  for (const auto& feature : features) {
    if (feature.is_wanted && !(feature.is_there && feature.is_allowed)) {
      return std::string(feature.name) +
             (feature.is_there ? ", got it switched off" : ", got none");
    }
  }
  const struct {
    const char* name;
    uint64_t wanted;
    uint64_t got;
  } limits[] = {
      {"max-storage-buffers-per-shader-stage", profile.max_storage_buffers,
       caps.max_storage_buffers},
      {"max-storage-buffer-binding-size", profile.max_binding, caps.max_binding},
      {"max-buffer-size", profile.max_buffer, caps.max_buffer},
      {"max-compute-workgroups-per-dimension", profile.max_workgroups,
       caps.max_workgroups},
      {"max-compute-invocations-per-workgroup", profile.max_invocations,
       caps.max_invocations},
      {"max-compute-workgroup-storage-size", profile.workgroup_memory,
       caps.workgroup_memory},
  };
  for (const auto& limit : limits) {
    if (limit.got < limit.wanted) {
      return std::string(limit.name) + " of " + std::to_string(limit.wanted) +
             ", got " + std::to_string(limit.got);
    }
  }
  if (caps.offset_align == 0 || profile.offset_align % caps.offset_align != 0) {
    return "min-storage-buffer-offset-alignment of at most " +
           std::to_string(profile.offset_align) + ", got " +
           std::to_string(caps.offset_align);
  }
  return "";
}

}  // namespace

const PlanProfile& choose_profile(const Plans& plans, const DeviceCaps& caps,
                                  const std::string& device, const Allowed& allowed) {
  std::string problem;
  for (const PlanProfile& profile : plans.profiles) {
    problem = shortcoming(profile, caps, allowed);
    if (problem.empty()) {
      return profile;
    }
  }
  throw Failure(Code::NotSupported, device + ": the device must have, for profile " +
                                        plans.profiles.back().name + ", " + problem);
}

}  // namespace etwgpu
