#include "player/player.h"

#include "player/background.h"
#include "player/check_plans.h"
#include "player/convert.h"
#include "player/device.h"
#include "player/error_scope.h"
#include "player/failure.h"
#include "player/named_data.h"
#include "player/owned.h"
#include "player/plan_file.h"
#include "player/plans.h"
#include "player/profile.h"
#include "player/replay.h"
#include "player/size_code.h"
#include "player/wgpu_api.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace etwgpu {
namespace {

// Bytes. Outputs start at multiples of it in the staging buffer.
constexpr uint64_t kStagingAlign = 16;

// Elements of a port, which must be countable before anything is multiplied with them.
constexpr int64_t kMaxElements = int64_t{1} << 40;

uint64_t aligned(uint64_t size, uint64_t align) {
  return (size + align - 1) / align * align;
}

[[noreturn]] void refuse(const std::string& where, const std::string& requirement,
                         int64_t got) {
  throw Failure(Code::DelegateInvalidCompatibility,
                where + ": " + requirement + ", got " + std::to_string(got) +
                    "; the program's plans are wrong");
}

// What all delegates that have the same content share.
std::string content_name(const PlanBuffer& spec, const PlanConstant& constant,
                         bool is_verified) {
  std::string name = is_verified ? "verified" : "unverified";
  name += " " + std::to_string(static_cast<int>(constant.dtype)) + " " +
          std::to_string(static_cast<int>(constant.storage)) + " " +
          std::to_string(spec.size);
  for (const uint64_t extent : constant.shape) {
    name += " " + std::to_string(extent);
  }
  return name + " of " + constant.data_key;
}

const char* role_name(Role role) {
  constexpr const char* kNames[] = {"constant", "state",   "input",
                                    "output",   "scratch", "status"};
  return kNames[static_cast<size_t>(role)];
}

}  // namespace

Player::Player(const std::string& name, const void* blob, size_t size,
               const PlayerOptions& options, const GetData& get_data)
    : name_(name),
      options_(options),
      plans_(read_plans(blob, size)),
      device_(Device::get(options.adapter)),
      uploader_(*device_, name, get_data, options.verify_weights) {
  const DeviceLock lock(*device_);
  device_->check();
  profile_ = &choose_profile(plans_, device_->caps(), device_->name(),
                             {options_.f16, options_.subgroups, options_.cpu_kernels});
  session_ = std::make_shared<Session>();
  const Events events = device_->events();
  session_->mutex = device_->mutex();
  session_->instance = events.instance;
  session_->device = events.device;
  session_->queue = events.queue;
  session_->is_shared = device_->is_shared();
  session_->patience.timeout = options_.timeout;
  try {
    // The first variant is that for the largest sizes.
    make_pipelines(profile_->variants.front());
    if (options_.compile == Compile::Auto || options_.compile == Compile::Load) {
      for (const PlanVariant& variant : profile_->variants) {
        make_pipelines(variant);
      }
      plans_.lines = {};
      spares_.clear();
    }
    make_buffers();
  } catch (...) {
    // What was not verified must not be there for others once the lock is gone.
    buffers_.clear();
    throw;
  }
  if (options_.compile == Compile::Background) {
    start_compiling();
  }
}

Player::~Player() {
  background_.reset();
  // Objects may be freed beside a call that goes on, but not while one is encoded.
  while (!session_->mutex->try_hold_for(std::chrono::milliseconds(100))) {
  }
  const std::shared_ptr<DeviceMutex> mutex = session_->mutex;
  live_.clear();
  groups_.clear();
  buffers_.clear();
  params_.reset();
  staging_.reset();
  spares_.clear();
  pipelines_.clear();
  mutex->unlock();
}

std::vector<bool> Player::key_ints() const {
  std::vector<bool> found(profile_->variants.front().inputs.size(), false);
  for (const PlanSymbol& symbol : plans_.symbols) {
    if (symbol.dim == -1) {
      found[symbol.input] = true;
    }
  }
  return found;
}

void Player::make_pipelines(const PlanVariant& variant) {
  for (const uint32_t index : variant.dispatches) {
    compile(plans_.dispatches[index]);
  }
}

void Player::compile(const PlanDispatch& dispatch) {
  const Pipeline& made = pipeline_of(dispatch);
  if (options_.compile == Compile::Load || options_.compile == Compile::Background) {
    device_->warm(made, spares_);
  }
}

const Pipeline& Player::pipeline_of(const PlanDispatch& dispatch) {
  std::shared_ptr<const Pipeline>& made = pipelines_[dispatch.kernel];
  if (made == nullptr) {
    const PlanKernel& kernel = plans_.kernels[dispatch.kernel];
    const bool is_told = kernel.subgroups && !wgpu().is_native();
    const std::string text =
        (is_told ? "enable subgroups;\n" : "") + text_of(plans_, kernel);
    // Kernels without counters in their loops end by themselves if they are this
    // package's own, which a file may only claim.
    made = device_->pipeline(kernel.label, text, kernel.access, options_.trust_plans,
                             place(dispatch));
  }
  return *made;
}

void Player::start_compiling() {
  std::set<uint32_t> seen;
  for (const PlanVariant& variant : profile_->variants) {
    for (const uint32_t index : variant.dispatches) {
      const PlanDispatch& dispatch = plans_.dispatches[index];
      if (seen.insert(dispatch.kernel).second) {
        ahead_.push_back(&dispatch);
      }
    }
  }
  std::reverse(ahead_.begin(), ahead_.end());
  background_ = std::make_unique<Background>(
      device_->name(), [this](const Background& self) { return compile_next(self); });
}

// A kernel that cannot be compiled is the failure of the call that needs it, which
// tries again.
bool Player::compile_next(const Background& self) {
  constexpr std::chrono::milliseconds kPeriod(1);
  DeviceMutex& mutex = *session_->mutex;
  // Everybody else goes first.
  while (mutex.is_wanted() || !mutex.try_lock_for(kPeriod)) {
    if (self.is_stopped()) {
      return false;
    }
    std::this_thread::sleep_for(kPeriod);
  }
  const std::unique_lock<DeviceMutex> lock(mutex, std::adopt_lock);
  if (ahead_.empty() || device_->is_lost()) {
    return false;
  }
  const PlanDispatch& dispatch = *ahead_.back();
  ahead_.pop_back();
  try {
    compile(dispatch);
  } catch (const Failure&) {
    has_failed_ = true;
  }
  if (ahead_.empty()) {
    spares_.clear();
  }
  if (ahead_.empty() && !has_failed_) {
    plans_.lines = {};
  }
  return true;
}

void Player::make_buffers() {
  std::set<uint32_t> used;
  uint64_t params = 0;
  for (const PlanVariant& variant : profile_->variants) {
    uint64_t end = 0;
    for (const uint32_t index : variant.dispatches) {
      const PlanDispatch& dispatch = plans_.dispatches[index];
      used.insert(dispatch.buffers.begin(), dispatch.buffers.end());
      end += params_bytes(dispatch);
    }
    params = std::max(params, end);
    for (const std::vector<uint32_t>* ports : {&variant.inputs, &variant.outputs}) {
      for (const uint32_t port : *ports) {
        if (plans_.ports[port].buffer >= 0) {
          used.insert(static_cast<uint32_t>(plans_.ports[port].buffer));
        }
      }
    }
    if (variant.status >= 0) {
      used.insert(static_cast<uint32_t>(variant.status));
    }
  }
  std::map<uint32_t, const PlanConstant*> contents;
  for (const PlanConstant& constant : plans_.constants) {
    contents[constant.buffer] = &constant;
  }
  // States of one key are one, whichever profile's buffer it is.
  std::map<std::string, std::shared_ptr<GpuBuffer>> states;
  for (const uint32_t index : used) {
    const PlanBuffer& spec = plans_.buffers[index];
    const auto content = contents.find(index);
    const PlanConstant* constant =
        content == contents.end() ? nullptr : content->second;
    if (spec.role != Role::State) {
      buffers_[index] = make_buffer(spec, constant);
      continue;
    }
    std::shared_ptr<GpuBuffer>& state = states[spec.key];
    if (state == nullptr) {
      state = make_buffer(spec, constant);
    }
    if (state->size() != spec.size) {
      refuse("state " + spec.key,
             "must have " + std::to_string(state->size()) + " bytes",
             static_cast<int64_t>(spec.size));
    }
    buffers_[index] = state;
  }
  uploader_.finish();
  if (params > 0) {
    params_ = device_->buffer("params", params,
                              WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst);
  }
}

std::shared_ptr<GpuBuffer> Player::make_buffer(const PlanBuffer& spec,
                                               const PlanConstant* constant) {
  if (spec.role == Role::Constant && constant != nullptr &&
      !constant->data_key.empty()) {
    return device_->constant(content_name(spec, *constant, options_.verify_weights),
                             [&] { return filled(spec, *constant); });
  }
  if (constant != nullptr) {
    return filled(spec, *constant);
  }
  WGPUBufferUsage usage =
      WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;
  if (device_->is_shared()) {
    if (spec.role == Role::Input) {
      usage |= WGPUBufferUsage_MapWrite;
    }
    if (spec.role == Role::Output || spec.role == Role::Status) {
      usage |= WGPUBufferUsage_MapRead;
    }
  }
  return device_->buffer(std::string(role_name(spec.role)) + " " + spec.key, spec.size,
                         usage);
}

std::shared_ptr<GpuBuffer> Player::filled(const PlanBuffer& spec,
                                          const PlanConstant& constant) {
  std::shared_ptr<GpuBuffer> buffer = make_buffer(spec, nullptr);
  uploader_.fill(*buffer, constant);
  return buffer;
}

void Player::reset_state() {
  const DeviceLock lock(*device_);
  device_->check();
  std::map<uint32_t, const PlanConstant*> contents;
  for (const PlanConstant& constant : plans_.constants) {
    contents[constant.buffer] = &constant;
  }
  for (const auto& [index, buffer] : buffers_) {
    const PlanBuffer& spec = plans_.buffers[index];
    if (spec.role != Role::State) {
      continue;
    }
    const WGPUBuffer handle = buffer->get();
    const std::string where = name_ + ": reset of " + spec.key;
    std::shared_ptr<OwnCommands> commands;
    device_->checked(where, [&] {
      const OwnEncoder encoder(
          wgpu().wgpuDeviceCreateCommandEncoder(session_->device, nullptr));
      wgpu().wgpuCommandEncoderClearBuffer(encoder.get(), handle, 0, spec.size);
      commands = std::make_shared<OwnCommands>(
          wgpu().wgpuCommandEncoderFinish(encoder.get(), nullptr));
    });
    device_->checked(where, [&] { submit_commands(session_->queue, commands->get()); });
    const auto content = contents.find(index);
    if (content != contents.end()) {
      uploader_.fill(*buffer, *content->second);
    }
  }
  uploader_.finish();
}

const Ports& Player::prepare(const std::vector<int64_t>& key,
                             const std::function<Inputs()>& inputs) {
  device_->check();
  for (auto at = live_.begin(); at != live_.end(); ++at) {
    if (at->key == key) {
      live_.splice(live_.begin(), live_, at);
      return *live_.front().ports;
    }
  }
  Live made = make_live(key, inputs());
  while (live_.size() >= options_.plan_cache) {
    live_.pop_back();
  }
  live_.push_front(std::move(made));
  return *live_.front().ports;
}

void Player::play(const Feeds& feeds, const Fetches& fetches, Tracer* tracer) {
  try {
    live_.front().replay->run(feeds, fetches, tracer);
  } catch (const GpuFailure& found) {
    diagnose(found);
  }
  // Submitting is outside of any scope: wgpu-native aborts there, others tell.
  device_->check_uncaptured(name_ + ": execute");
}

Player::Live Player::make_live(const std::vector<int64_t>& key, const Inputs& inputs) {
  const std::vector<int64_t> registers =
      live_registers(plans_, profile_->variants.front(), inputs);
  const PlanVariant& variant = choose_variant(plans_, *profile_, registers);
  Live live;
  live.key = key;
  std::string params;
  std::map<int32_t, std::string> calls;
  std::map<std::string, size_t> named;  // names of events, as in plan/events.py
  for (const uint32_t index : variant.dispatches) {
    const PlanDispatch& dispatch = plans_.dispatches[index];
    const std::string name = "#" + std::to_string(dispatch.call) + " " +
                             dispatch.label + ": " +
                             plans_.kernels[dispatch.kernel].label;
    const size_t nth = ++named[name];
    add_step(live, dispatch, registers, params,
             nth == 1 ? name : name + " (" + std::to_string(nth) + ")");
    calls[static_cast<int32_t>(dispatch.call)] = dispatch.label;
  }
  auto ports = std::make_shared<Ports>();
  for (const uint32_t index : variant.inputs) {
    ports->inputs.push_back(make_port(plans_.ports[index], registers));
  }
  uint64_t end = kStatusBytes;
  for (const uint32_t index : variant.outputs) {
    Port port = make_port(plans_.ports[index], registers);
    port.offset = end;
    end += port.buffer == nullptr ? 0 : aligned(port.bytes(), kStagingAlign);
    ports->outputs.push_back(std::move(port));
  }
  // What holds for the first variant's inputs must hold for this one's.
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<int32_t>& shape = ports->inputs[i].shape;
    if (!std::equal(shape.begin(), shape.end(), inputs[i].shape.begin(),
                    inputs[i].shape.end())) {
      refuse(ports->inputs[i].name, "must have one shape in all variants",
             static_cast<int64_t>(ports->inputs[i].numel));
    }
  }
  live.ports = ports;
  if (!device_->is_shared()) {
    reserve_staging(end);
  }
  const auto handle = [&](int32_t index) {
    return index < 0 ? nullptr : buffers_.at(static_cast<uint32_t>(index))->get();
  };
  live.replay = std::make_shared<Replay>(session_, ports, live.steps, std::move(params),
                                         params_ == nullptr ? nullptr : params_->get(),
                                         handle(variant.status), std::move(calls));
  return live;
}

// Parameters have their place by the dispatch's place in the variant, whether or not it
// is launched, so that bind groups serve all live shapes.
void Player::add_step(Live& live, const PlanDispatch& dispatch,
                      const std::vector<int64_t>& registers, std::string& params,
                      const std::string& name) {
  const std::string where = place(dispatch);
  uint32_t groups[3];
  bool is_empty = false;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t count = registers[dispatch.groups[i]];
    if (count < 0 || count > profile_->max_workgroups) {
      refuse(where,
             "workgroups must be from 0 to " + std::to_string(profile_->max_workgroups),
             count);
    }
    groups[i] = static_cast<uint32_t>(count);
    is_empty = is_empty || count == 0;
  }
  const uint64_t offset = params.size();
  params.resize(offset + params_bytes(dispatch));
  if (is_empty) {
    return;
  }
  for (size_t i = 0; i < dispatch.params.size(); ++i) {
    const int64_t value = registers[dispatch.params[i]];
    if (value < -(int64_t{1} << 31) || value >= int64_t{1} << 32) {
      refuse(where, "a parameter must fit 32 bits", value);
    }
    const auto word = static_cast<uint32_t>(value);
    std::memcpy(&params[offset + 4 * i], &word, sizeof(word));
  }
  std::vector<Bound> bounds;
  for (size_t i = 0; i < dispatch.buffers.size(); ++i) {
    bounds.push_back(bound(dispatch, i, registers));
  }
  if (!dispatch.params.empty()) {
    bounds.push_back({params_.get(), offset, 4 * uint64_t{dispatch.params.size()}});
  }
  const Pipeline& pipeline = pipeline_of(dispatch);
  live.groups.push_back(bind(pipeline, bounds, where));
  live.places.push_back(where);
  live.steps.push_back({pipeline.handle.get(), live.groups.back()->get(), groups[0],
                        groups[1], groups[2], name});
}

Player::Bound Player::bound(const PlanDispatch& dispatch, size_t binding,
                            const std::vector<int64_t>& registers) const {
  const uint32_t index = dispatch.buffers[binding];
  const GpuBuffer& buffer = *buffers_.at(index);
  Bound found{&buffer, 0, buffer.size()};
  if (!dispatch.ranges.empty()) {
    const int64_t offset = registers[dispatch.ranges[2 * binding]];
    const int64_t size = registers[dispatch.ranges[2 * binding + 1]];
    const auto whole = static_cast<int64_t>(buffer.size());
    if (offset < 0 || offset > whole || offset % profile_->offset_align != 0) {
      refuse(place(dispatch),
             "an offset must be a multiple of " +
                 std::to_string(profile_->offset_align) + " in a buffer of " +
                 std::to_string(whole) + " bytes",
             offset);
    }
    if (size <= 0 || size % 4 != 0 || size > whole - offset) {
      refuse(place(dispatch),
             "a range must be a multiple of 4 in the " +
                 std::to_string(whole - offset) + " bytes that are left",
             size);
    }
    found.offset = static_cast<uint64_t>(offset);
    found.size = static_cast<uint64_t>(size);
  }
  if (found.size > profile_->max_binding) {
    refuse(place(dispatch),
           "a binding must have at most " + std::to_string(profile_->max_binding) +
               " bytes",
           static_cast<int64_t>(found.size));
  }
  return found;
}

std::shared_ptr<const OwnBindGroup> Player::bind(const Pipeline& pipeline,
                                                 const std::vector<Bound>& bounds,
                                                 const std::string& where) {
  const WGPUBindGroupLayout layout = pipeline.layout->group.get();
  std::vector<uint64_t> key = {reinterpret_cast<uintptr_t>(layout)};
  std::vector<WGPUBindGroupEntry> entries(bounds.size());
  for (size_t i = 0; i < bounds.size(); ++i) {
    entries[i].binding = static_cast<uint32_t>(i);
    entries[i].buffer = bounds[i].buffer->get();
    entries[i].offset = bounds[i].offset;
    entries[i].size = bounds[i].size;
    key.insert(key.end(), {reinterpret_cast<uintptr_t>(entries[i].buffer),
                           bounds[i].offset, bounds[i].size});
  }
  if (std::shared_ptr<const OwnBindGroup> found = groups_[key].lock()) {
    return found;
  }
  std::shared_ptr<const OwnBindGroup> made;
  device_->checked(where, [&] {
    WGPUBindGroupDescriptor descriptor = {};
    descriptor.layout = layout;
    descriptor.entryCount = entries.size();
    descriptor.entries = entries.data();
    made = std::make_shared<const OwnBindGroup>(
        wgpu().wgpuDeviceCreateBindGroup(session_->device, &descriptor));
  });
  groups_[key] = made;
  return made;
}

Port Player::make_port(const PlanPort& spec,
                       const std::vector<int64_t>& registers) const {
  Port port;
  port.name = spec.name;
  port.is_int = spec.is_int;
  port.dtype = spec.is_int ? DType::Long : spec.dtype;
  port.storage = spec.storage;
  port.value = spec.is_int ? registers[spec.value] : 0;
  if (spec.buffer >= 0) {
    port.buffer = buffers_.at(static_cast<uint32_t>(spec.buffer))->get();
  }
  int64_t count = 1;
  for (const Register extent : spec.shape) {
    const int64_t live = registers[extent];
    if (live < 0 || live > INT32_MAX) {
      refuse(spec.name, "a size must be from 0 to 2147483647", live);
    }
    port.shape.push_back(static_cast<int32_t>(live));
    if (count > 0 && live > kMaxElements / count) {
      refuse(spec.name, "elements must fit a buffer", live);
    }
    count *= live;
  }
  port.numel = static_cast<size_t>(count);
  for (const PlanLimit& limit : spec.limits) {
    port.limits.push_back({limit.label, registers[limit.add], registers[limit.count],
                           registers[limit.length]});
  }
  return port;
}

void Player::reserve_staging(uint64_t size) {
  if (staging_ != nullptr && staging_->size() >= size) {
    return;
  }
  std::shared_ptr<GpuBuffer> made = device_->buffer(
      "staging", size, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst);
  session_->staging = made->get();
  session_->staging_size = size;
  staging_ = std::move(made);
}

std::string Player::place(const PlanDispatch& dispatch) const {
  return dispatch.label + " (call " + std::to_string(dispatch.call) + ", kernel " +
         plans_.kernels[dispatch.kernel].label + ")";
}

// wgpu reports errors of many commands at once: each dispatch is encoded by itself to
// find the one that is meant.
void Player::diagnose(const GpuFailure& found) const {
  const Live& live = live_.front();
  for (size_t i = 0; i < live.steps.size() && !device_->is_lost(); ++i) {
    const Step& step = live.steps[i];
    device_->checked(live.places[i], [&] {
      const OwnEncoder encoder(
          wgpu().wgpuDeviceCreateCommandEncoder(session_->device, nullptr));
      {
        const OwnPass pass(
            wgpu().wgpuCommandEncoderBeginComputePass(encoder.get(), nullptr));
        wgpu().wgpuComputePassEncoderSetPipeline(pass.get(), step.pipeline);
        wgpu().wgpuComputePassEncoderSetBindGroup(pass.get(), 0, step.group, 0,
                                                  nullptr);
        wgpu().wgpuComputePassEncoderDispatchWorkgroups(pass.get(), step.x, step.y,
                                                        step.z);
        wgpu().wgpuComputePassEncoderEnd(pass.get());
      }
      const OwnCommands commands(
          wgpu().wgpuCommandEncoderFinish(encoder.get(), nullptr));
    });
  }
  throw device_->failure(name_ + ": execute", found);
}

}  // namespace etwgpu
