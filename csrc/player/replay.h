// Plays a plan without Python: all dispatches, submitted in a few parts that grow, so
// that the GPU starts before all is encoded, and one read-back. No GPU object is
// created but the command buffers.
//
// All handles are borrowed: wgpu-py's objects own them, and runtime.Program, which owns
// the replay too, holds those objects.

#pragma once

#include "player/convert.h"
#include "player/device_mutex.h"
#include "player/dtype.h"
#include "player/events.h"
#include "player/mapper.h"
#include "player/owned.h"
#include "player/tracer.h"
#include "player/wgpu_api.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace etwgpu {

// What an int may be, as in plan.Limit.
struct Limit {
  std::string label;
  int64_t add = 0;
  int64_t count = 0;
  int64_t length = 0;
};

// One argument of the delegate call, as in plan.Port.
struct Port {
  std::string name;
  bool is_int = false;
  WGPUBuffer buffer = nullptr;  // null: nothing is copied
  DType dtype = DType::Float;
  Storage storage = Storage::F32;
  std::vector<int32_t> shape;
  size_t numel = 1;
  uint64_t offset = 0;        // of an output, in the staging buffer
  int64_t value = 0;          // of an output that is an int
  std::vector<Limit> limits;  // of an input that is an int

  // Bytes in the GPU buffer, rounded up to four: WebGPU copies whole words.
  uint64_t bytes() const { return (numel * storage_size(storage) + 3) / 4 * 4; }
};

struct Ports {
  std::vector<Port> inputs;
  std::vector<Port> outputs;
};

struct Step {
  WGPUComputePipeline pipeline;
  WGPUBindGroup group;
  uint32_t x, y, z;
  std::string name;  // of its event in a profile
};

// The bytes of a port on the host side: a tensor's data or one int64.
using Feeds = std::vector<const void*>;
using Fetches = std::vector<void*>;

// What all plans of one delegate share.
struct Session {
  std::shared_ptr<DeviceMutex> mutex;
  WGPUInstance instance = nullptr;  // may be null where the library is wgpu-native
  WGPUDevice device = nullptr;
  WGPUQueue queue = nullptr;
  // Whether the buffers of inputs and outputs can be mapped themselves, because the GPU
  // works in the host's memory. If not, outputs are read from the staging buffer.
  bool is_shared = false;
  Patience patience;
  WGPUBuffer staging = nullptr;
  uint64_t staging_size = 0;
  // Input buffers that stay mapped for writing between calls, and their bytes.
  std::map<WGPUBuffer, uint8_t*> open;
  // Which replay's parameters a buffer holds. Serial numbers, because an address could
  // be used again by another replay.
  std::map<WGPUBuffer, uint64_t> params_of;
  std::set<WGPUComputePipeline> warm;  // those that were dispatched
  std::vector<uint8_t> scratch;        // inputs converted to their storage types

  Events events() const { return {instance, device, queue}; }

  // Keeps the device until it has done all that was submitted, or the patience ends.
  void settle() const;

  // Unmaps the inputs: what uses a mapped buffer cannot be submitted.
  void close_inputs();

  // Called before another player writes its parameters into the same buffers.
  void forget_params() { params_of.clear(); }
};

class Replay {
 public:
  Replay(std::shared_ptr<Session> session, std::shared_ptr<const Ports> ports,
         std::vector<Step> steps, std::string params,
         WGPUBuffer params_buffer,  // null if there are no parameters
         WGPUBuffer status,         // null if no kernel reports
         std::map<int32_t, std::string> calls);

  // Plays the plan; the caller holds the device's mutex. Throws GpuFailure if wgpu
  // reported an error, else Failure. A bad input is found before anything is submitted.
  // A run that is left while it waits goes on on the GPU, which it keeps till the end.
  // With a tracer, each dispatch is submitted, waited for and timed alone.
  void run(const Feeds& feeds, const Fetches& fetches, Tracer* tracer = nullptr);

  // Encodes all commands and drops them, to measure what encoding costs.
  void record() const;

  const Ports& ports() const { return *ports_; }

 private:
  void play(const Feeds& feeds, const Fetches& fetches, Tracer* tracer);
  std::vector<size_t> cold_parts() const;
  void upload(const Feeds& feeds);
  void write_open(const Feeds& feeds);
  std::shared_ptr<const OwnCommands> encode(size_t first, size_t last) const;
  WGPUSubmissionIndex submit(std::shared_ptr<const OwnCommands> commands, Watch& watch);
  void encode_pass(WGPUCommandEncoder encoder, size_t first, size_t last) const;
  void encode_staging(WGPUCommandEncoder encoder) const;
  void request_results(Mapper& mapper) const;
  void read_staging(const Mapper& mapper, const Fetches& fetches) const;
  void read_shared(Mapper& mapper, const Fetches& fetches);
  void check_status(const uint8_t* found_status) const;

  std::shared_ptr<Session> session_;
  std::shared_ptr<const Ports> ports_;
  std::vector<Step> steps_;
  std::vector<size_t> parts_;    // the end of each submit's steps
  std::vector<size_t> singles_;  // the same for one step per submit
  std::string params_;
  WGPUBuffer params_buffer_;
  WGPUBuffer status_;
  std::map<int32_t, std::string> calls_;  // op labels, for messages
  uint64_t serial_;
  bool has_run_ = false;
  // From the first submit to the results, in the last run that came to its end.
  std::chrono::nanoseconds busy_ = std::chrono::nanoseconds::max();
  uint64_t read_size_ = 0;  // bytes of the staging buffer that are used
  // Without it: the buffers to map, and their bytes; outputs may share one.
  std::map<WGPUBuffer, uint64_t> reads_;
};

// The host's elements of an input in its storage type: `feed` itself if the bytes are
// the same, else converted into `scratch`. Throws Failure for a value that does not
// fit.
const void* stage_input(const Port& port, const void* feed,
                        std::vector<uint8_t>& scratch);

// The size of the status buffer, which precedes the outputs in the staging buffer.
inline constexpr uint64_t kStatusBytes = 16;

// Submits of all replays so far.
uint64_t submissions();

// Seconds summed over all runs that came to their end: of writing inputs, from the
// first submit to the results, and of reading outputs.
double upload_seconds();
double busy_seconds();
double read_seconds();

}  // namespace etwgpu
