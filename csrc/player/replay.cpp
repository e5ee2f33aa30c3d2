#include "player/replay.h"

#include "player/convert.h"
#include "player/error_scope.h"
#include "player/events.h"
#include "player/failure.h"
#include "player/mapper.h"
#include "player/owned.h"
#include "player/report.h"
#include "player/tracer.h"
#include "player/wgpu_api.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace etwgpu {

namespace {

// Dispatches of the first submit. The GPU works on them while the next part, of
// twice as many, is encoded; doubling keeps the submits few.
constexpr size_t kFirstPart = 16;

// What is expected to take less is left to the driver in this thread, where no signal
// is noticed meanwhile.
constexpr std::chrono::milliseconds kQuick(50);

std::atomic<uint64_t> g_serial{0};
std::atomic<uint64_t> g_submissions{0};
std::atomic<uint64_t> g_upload_nanoseconds{0};
std::atomic<uint64_t> g_busy_nanoseconds{0};
std::atomic<uint64_t> g_read_nanoseconds{0};

using Clock = std::chrono::steady_clock;

void add_time(std::atomic<uint64_t>& sum, Clock::duration time) {
  sum += static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
}

double in_seconds(const std::atomic<uint64_t>& nanoseconds) {
  return static_cast<double>(nanoseconds.load()) * 1e-9;
}

[[noreturn]] void refuse_value(const Port& port, const void* feed, size_t at) {
  const int64_t value = static_cast<const int64_t*>(feed)[at];
  throw Failure(Code::InvalidArgument,
                port.name + ": int64 values must fit int32, got " +
                    std::to_string(value) + " at " + std::to_string(at));
}

// Bytes are written into mapped buffers unchecked, so that nothing is looked at twice
// in a call: a replay that would go beyond the end of one is not made.
void require_fits(const std::string& what, uint64_t bytes, WGPUBuffer buffer) {
  const uint64_t size = wgpu().wgpuBufferGetSize(buffer);
  if (bytes > size) {
    throw Failure(Code::DelegateInvalidCompatibility,
                  "replay: " + what + " must fit a buffer of " + std::to_string(size) +
                      " bytes, got " + std::to_string(bytes));
  }
}

bool is_used(const Port& port) { return port.buffer != nullptr && port.numel > 0; }

// A profiled dispatch, if there is a tracer: from construction to the end of wait().
class Traced {
 public:
  Traced(Tracer* tracer, const char* name) : tracer_(tracer) {
    if (tracer_ != nullptr) {
      tracer_->begin(name);
    }
  }

  void wait(const Events& events, WGPUSubmissionIndex index) {
    if (tracer_ != nullptr) {
      wait_for(events, index);
      tracer_->end();
    }
  }

 private:
  Tracer* tracer_;
};

}  // namespace

uint64_t submissions() { return g_submissions.load(); }

double upload_seconds() { return in_seconds(g_upload_nanoseconds); }

double busy_seconds() { return in_seconds(g_busy_nanoseconds); }

double read_seconds() { return in_seconds(g_read_nanoseconds); }

const void* stage_input(const Port& port, const void* feed,
                        std::vector<uint8_t>& scratch) {
  const size_t bytes = port.numel * storage_size(port.storage);
  if (is_same_bytes(port.dtype, port.storage) && bytes % 4 == 0) {
    return feed;
  }
  scratch.resize(port.bytes());
  const size_t converted =
      to_storage(port.dtype, port.storage, feed, scratch.data(), port.numel);
  if (converted != port.numel) {
    refuse_value(port, feed, converted);
  }
  return scratch.data();
}

void Session::settle() const {
  wgpu().wgpuDeviceAddRef(device);
  wgpu().wgpuQueueAddRef(queue);
  const auto own_device = std::make_shared<OwnDevice>(device);
  const auto own_queue = std::make_shared<OwnQueue>(queue);
  mutex->start([own_device, own_queue, events = this->events(),
                end = Clock::now() + patience.timeout] {
    finish(events, [end] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return Clock::now() < end;
    });
  });
}

void Session::close_inputs() {
  for (const auto& [buffer, data] : open) {
    wgpu().wgpuBufferUnmap(buffer);
  }
  open.clear();
}

Replay::Replay(std::shared_ptr<Session> session, std::shared_ptr<const Ports> ports,
               std::vector<Step> steps, std::string params, WGPUBuffer params_buffer,
               WGPUBuffer status, std::map<int32_t, std::string> calls)
    : session_(std::move(session)),
      ports_(std::move(ports)),
      steps_(std::move(steps)),
      params_(std::move(params)),
      params_buffer_(params_buffer),
      status_(status),
      calls_(std::move(calls)),
      serial_(++g_serial) {
  for (size_t end = 0, length = kFirstPart; end < steps_.size(); length *= 2) {
    end += length;
    // A last part that is shorter than the one before it joins it.
    if (end + length > steps_.size()) {
      end = steps_.size();
    }
    parts_.push_back(end);
  }
  for (size_t end = 1; end <= steps_.size(); ++end) {
    singles_.push_back(end);
  }
  if (parts_.empty()) {
    parts_.push_back(0);
    singles_.push_back(0);
  }
  if (status_ != nullptr) {
    require_fits("status", kStatusBytes, status_);
    read_size_ = reads_[status_] = kStatusBytes;
  }
  for (const Port& port : ports_->inputs) {
    if (is_used(port)) {
      require_fits(port.name, port.bytes(), port.buffer);
    }
  }
  for (const Port& port : ports_->outputs) {
    if (is_used(port)) {
      require_fits(port.name, port.bytes(), port.buffer);
      read_size_ = std::max(read_size_, port.offset + port.bytes());
      reads_[port.buffer] = std::max(reads_[port.buffer], port.bytes());
    }
  }
  if (!session_->is_shared && read_size_ > session_->staging_size) {
    throw Failure(Code::Internal, "replay: staging buffer must have " +
                                      std::to_string(read_size_) + " bytes, got " +
                                      std::to_string(session_->staging_size));
  }
  if (!params_.empty() && params_buffer_ == nullptr) {
    throw Failure(Code::Internal, "replay: parameters must have a buffer");
  }
  if (!params_.empty()) {
    require_fits("parameters", params_.size(), params_buffer_);
  }
}

void Replay::run(const Feeds& feeds, const Fetches& fetches, Tracer* tracer) {
  try {
    play(feeds, fetches, tracer);
  } catch (const GpuFailure&) {
    throw;
  } catch (const Failure&) {
    session_->settle();
    throw;
  }
}

void Replay::play(const Feeds& feeds, const Fetches& fetches, Tracer* tracer) {
  Watch watch(session_->patience);
  Clock::time_point begin;
  Clock::duration uploading{};
  WGPUSubmissionIndex index = 0;
  size_t first = 0;
  const std::vector<size_t> cold = has_run_ ? std::vector<size_t>() : cold_parts();
  std::vector<size_t> cuts;
  for (const size_t last : tracer ? singles_ : has_run_ ? parts_ : cold) {
    ErrorScope scope(session_->events());
    if (first == 0) {
      const Clock::time_point start = Clock::now();
      upload(feeds);
      uploading = Clock::now() - start;
    }
    const std::shared_ptr<const OwnCommands> commands = encode(first, last);
    // wgpu-native aborts the process if an invalid command buffer is submitted.
    scope.check();
    if (first == 0) {
      if (!params_.empty()) {
        session_->params_of[params_buffer_] = serial_;
      }
      session_->close_inputs();
      begin = Clock::now();
    }
    Traced traced(tracer, first < last ? steps_[first].name.c_str() : "nothing");
    const Clock::time_point submitted = Clock::now();
    index = submit(commands, watch);
    if (last - first > 1 && Clock::now() - submitted > kQuick) {
      cuts.push_back(first + (last - first) / 2);
    }
    traced.wait(session_->events(), index);
    watch.check();
    first = last;
  }
  if (!has_run_) {
    for (const Step& step : steps_) {
      session_->warm.insert(step.pipeline);
    }
    has_run_ = true;
  }
  // A software driver computes inside the submit: the next run comes up more often.
  parts_.insert(parts_.end(), cuts.begin(), cuts.end());
  std::sort(parts_.begin(), parts_.end());
  if (reads_.empty()) {
    return;
  }
  Mapper mapper(session_->events());
  request_results(mapper);
  const bool is_quick = busy_ < kQuick;
  busy_ = std::chrono::nanoseconds::max();
  mapper.wait(&index, watch, is_quick);
  const Clock::time_point arrived = Clock::now();
  busy_ = arrived - begin;
  if (session_->is_shared) {
    read_shared(mapper, fetches);
  } else {
    read_staging(mapper, fetches);
  }
  add_time(g_upload_nanoseconds, uploading);
  add_time(g_busy_nanoseconds, busy_);
  add_time(g_read_nanoseconds, Clock::now() - arrived);
}

// Some drivers compile a kernel inside the submit of its first dispatch, which is
// therefore submitted alone: signals are noticed between submits.
std::vector<size_t> Replay::cold_parts() const {
  std::set<size_t> ends(parts_.begin(), parts_.end());
  std::set<WGPUComputePipeline> warm = session_->warm;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (warm.insert(steps_[i].pipeline).second) {
      ends.insert({i, i + 1});
    }
  }
  if (!steps_.empty()) {
    ends.erase(0);
  }
  return {ends.begin(), ends.end()};
}

void Replay::record() const {
  size_t first = 0;
  for (const size_t last : parts_) {
    (void)encode(first, last);
    first = last;
  }
}

void Replay::upload(const Feeds& feeds) {
  const WgpuApi& api = wgpu();
  if (session_->is_shared) {
    write_open(feeds);
  } else {
    for (size_t i = 0; i < ports_->inputs.size(); ++i) {
      const Port& port = ports_->inputs[i];
      if (is_used(port)) {
        const void* data = stage_input(port, feeds[i], session_->scratch);
        api.wgpuQueueWriteBuffer(session_->queue, port.buffer, 0, data, port.bytes());
      }
    }
  }
  if (!params_.empty() && session_->params_of[params_buffer_] != serial_) {
    // Until the write is known to be good, nobody's parameters are there.
    session_->params_of[params_buffer_] = 0;
    api.wgpuQueueWriteBuffer(session_->queue, params_buffer_, 0, params_.data(),
                             params_.size());
  }
}

// Writes the inputs into their mapped buffers; those that the last call has not left
// mapped are mapped first.
void Replay::write_open(const Feeds& feeds) {
  std::map<WGPUBuffer, uint8_t*>& open = session_->open;
  Mapper mapper(session_->events());
  std::vector<WGPUBuffer> closed;
  for (const Port& port : ports_->inputs) {
    if (is_used(port) && open.count(port.buffer) == 0) {
      const uint64_t size = wgpu().wgpuBufferGetSize(port.buffer);
      mapper.request(port.buffer, WGPUMapMode_Write, size);
      closed.push_back(port.buffer);
    }
  }
  Watch watch(session_->patience);
  mapper.wait(nullptr, watch, false);
  for (const WGPUBuffer buffer : closed) {
    open[buffer] = mapper.keep(buffer);
  }
  for (size_t i = 0; i < ports_->inputs.size(); ++i) {
    const Port& port = ports_->inputs[i];
    if (!is_used(port)) {
      continue;
    }
    const size_t converted =
        to_storage(port.dtype, port.storage, feeds[i], open[port.buffer], port.numel);
    if (converted != port.numel) {
      refuse_value(port, feeds[i], converted);
    }
  }
}

std::shared_ptr<const OwnCommands> Replay::encode(size_t first, size_t last) const {
  const WgpuApi& api = wgpu();
  const OwnEncoder encoder(
      api.wgpuDeviceCreateCommandEncoder(session_->device, nullptr));
  if (first == 0 && status_ != nullptr) {
    api.wgpuCommandEncoderClearBuffer(encoder.get(), status_, 0, kStatusBytes);
  }
  if (first < last) {
    encode_pass(encoder.get(), first, last);
  }
  if (last == steps_.size() && !session_->is_shared) {
    encode_staging(encoder.get());
  }
  return std::make_shared<OwnCommands>(
      api.wgpuCommandEncoderFinish(encoder.get(), nullptr));
}

// Some drivers compile in here, or wait for what was submitted before.
WGPUSubmissionIndex Replay::submit(std::shared_ptr<const OwnCommands> commands,
                                   Watch& watch) {
  ++g_submissions;
  if (busy_ < kQuick) {
    return submit_commands(session_->queue, commands->get());
  }
  wgpu().wgpuQueueAddRef(session_->queue);
  const auto queue = std::make_shared<OwnQueue>(session_->queue);
  const auto index = std::make_shared<WGPUSubmissionIndex>(0);
  session_->mutex->run([=] { *index = submit_commands(queue->get(), commands->get()); },
                       [&] { watch.check(); });
  return *index;
}

void Replay::encode_staging(WGPUCommandEncoder encoder) const {
  const WgpuApi& api = wgpu();
  const WGPUBuffer staging = session_->staging;
  if (status_ != nullptr) {
    api.wgpuCommandEncoderCopyBufferToBuffer(encoder, status_, 0, staging, 0,
                                             kStatusBytes);
  }
  for (const Port& port : ports_->outputs) {
    if (is_used(port)) {
      api.wgpuCommandEncoderCopyBufferToBuffer(encoder, port.buffer, 0, staging,
                                               port.offset, port.bytes());
    }
  }
}

void Replay::encode_pass(WGPUCommandEncoder encoder, size_t first, size_t last) const {
  const WgpuApi& api = wgpu();
  const OwnPass pass(api.wgpuCommandEncoderBeginComputePass(encoder, nullptr));
  WGPUComputePipeline pipeline = nullptr;
  WGPUBindGroup group = nullptr;
  for (size_t i = first; i < last; ++i) {
    const Step& step = steps_[i];
    if (step.pipeline != pipeline) {
      pipeline = step.pipeline;
      api.wgpuComputePassEncoderSetPipeline(pass.get(), pipeline);
    }
    if (step.group != group) {
      group = step.group;
      api.wgpuComputePassEncoderSetBindGroup(pass.get(), 0, group, 0, nullptr);
    }
    api.wgpuComputePassEncoderDispatchWorkgroups(pass.get(), step.x, step.y, step.z);
  }
  api.wgpuComputePassEncoderEnd(pass.get());
}

// The inputs are mapped for the next call in the same wait: the GPU is done with them
// when the outputs are there.
void Replay::request_results(Mapper& mapper) const {
  if (!session_->is_shared) {
    mapper.request(session_->staging, WGPUMapMode_Read, read_size_);
    return;
  }
  for (const auto& [buffer, size] : reads_) {
    mapper.request(buffer, WGPUMapMode_Read, size);
  }
  for (const Port& port : ports_->inputs) {
    if (is_used(port)) {
      const uint64_t size = wgpu().wgpuBufferGetSize(port.buffer);
      mapper.request(port.buffer, WGPUMapMode_Write, size);
    }
  }
}

void Replay::read_staging(const Mapper& mapper, const Fetches& fetches) const {
  const uint8_t* staged = mapper.read(session_->staging);
  check_status(staged);
  for (size_t i = 0; i < ports_->outputs.size(); ++i) {
    const Port& port = ports_->outputs[i];
    if (is_used(port)) {
      from_storage(port.dtype, port.storage, staged + port.offset, fetches[i],
                   port.numel);
    }
  }
}

// Reads the outputs from their own buffers.
void Replay::read_shared(Mapper& mapper, const Fetches& fetches) {
  for (const Port& port : ports_->inputs) {
    if (is_used(port)) {
      session_->open[port.buffer] = mapper.keep(port.buffer);
    }
  }
  if (status_ != nullptr) {
    check_status(mapper.read(status_));
  }
  for (size_t i = 0; i < ports_->outputs.size(); ++i) {
    const Port& port = ports_->outputs[i];
    if (is_used(port)) {
      from_storage(port.dtype, port.storage, mapper.read(port.buffer), fetches[i],
                   port.numel);
    }
  }
}

void Replay::check_status(const uint8_t* found_status) const {
  if (status_ == nullptr) {
    return;
  }
  int32_t status[4];
  std::memcpy(status, found_status, sizeof(status));
  const std::string report = describe_report(status);
  if (report.empty()) {
    return;
  }
  const auto found = calls_.find(status[1]);
  const std::string label =
      found == calls_.end() ? "call " + std::to_string(status[1]) : found->second;
  throw Failure(Code::InvalidArgument, label + ": " + report);
}

}  // namespace etwgpu
