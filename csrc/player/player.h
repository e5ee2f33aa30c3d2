// One delegate of a program with plans: its GPU objects, and its calls.

#pragma once

#include "player/background.h"
#include "player/device.h"
#include "player/named_data.h"
#include "player/plans.h"
#include "player/replay.h"
#include "player/size_code.h"
#include "player/tracer.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace etwgpu {

// When kernels are compiled.
enum class Compile {
  Auto,        // all are given to the driver at load, which may put off a part of it
  Load,        // all before a method is loaded
  Background,  // those for the largest sizes before, and the others by a thread
  Call,        // those for the largest sizes before, others by the call that needs them
};

struct PlayerOptions {
  std::string adapter;         // part of its name; "" takes the best one
  bool f16 = true;             // whether plans that compute with f16 may be taken
  bool subgroups = true;       // and those that use subgroups
  bool cpu_kernels = true;     // and, where the processor computes, those for that
  bool verify_weights = true;  // whether constants must be what their keys say
  bool trust_plans = false;    // whether the file is known not to be made to do harm
  std::chrono::seconds timeout{600};
  size_t plan_cache = 64;  // sets of live shapes that are kept
  Compile compile = Compile::Auto;
};

class Player {
 public:
  // Makes all that does not depend on live shapes; throws Failure, with nothing left on
  // the GPU. `get_data` is asked for again when states are reset.
  Player(const std::string& name, const void* blob, size_t size,
         const PlayerOptions& options, const GetData& get_data);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  const std::string& name() const { return name_; }
  const Device& device() const { return *device_; }
  const std::string& profile() const { return profile_->name; }
  // By input, whether it is an int that decides the plan.
  std::vector<bool> key_ints() const;
  size_t outputs() const { return profile_->variants.front().outputs.size(); }
  // Whether no thread compiles kernels any more.
  bool is_compiled() const { return background_ == nullptr || background_->is_done(); }

  // A call is prepare(), whose ports say what play() reads and writes; the caller holds
  // a DeviceLock from the one to the other's end. `key` tells one set of live inputs
  // from another; `inputs` are asked for if it is new.
  using Inputs = std::vector<LiveInput>;
  const Ports& prepare(const std::vector<int64_t>& key,
                       const std::function<Inputs()>& inputs);
  void play(const Feeds& feeds, const Fetches& fetches, Tracer* tracer);

  // Gives the states their content at load; takes the device's lock.
  void reset_state();

 private:
  // What is made for one set of live shapes.
  struct Live {
    std::vector<int64_t> key;
    std::vector<std::shared_ptr<const OwnBindGroup>> groups;
    std::vector<std::string> places;  // of each step, for messages
    std::vector<Step> steps;
    std::shared_ptr<const Ports> ports;
    std::shared_ptr<Replay> replay;
  };

  // What is bound of a buffer.
  struct Bound {
    const GpuBuffer* buffer;
    uint64_t offset;
    uint64_t size;
  };

  void make_pipelines(const PlanVariant& variant);
  const Pipeline& pipeline_of(const PlanDispatch& dispatch);
  void compile(const PlanDispatch& dispatch);
  void start_compiling();
  bool compile_next(const Background& self);
  void make_buffers();
  std::shared_ptr<GpuBuffer> make_buffer(const PlanBuffer& spec,
                                         const PlanConstant* constant);
  std::shared_ptr<GpuBuffer> filled(const PlanBuffer& spec,
                                    const PlanConstant& constant);
  Live make_live(const std::vector<int64_t>& key, const Inputs& inputs);
  void add_step(Live& live, const PlanDispatch& dispatch,
                const std::vector<int64_t>& registers, std::string& params,
                const std::string& name);
  Bound bound(const PlanDispatch& dispatch, size_t binding,
              const std::vector<int64_t>& registers) const;
  std::shared_ptr<const OwnBindGroup> bind(const Pipeline& pipeline,
                                           const std::vector<Bound>& bounds,
                                           const std::string& where);
  Port make_port(const PlanPort& port, const std::vector<int64_t>& registers) const;
  void reserve_staging(uint64_t size);
  std::string place(const PlanDispatch& dispatch) const;
  [[noreturn]] void diagnose(const GpuFailure& found) const;

  std::string name_;
  PlayerOptions options_;
  Plans plans_;
  std::shared_ptr<Device> device_;
  Uploader uploader_;
  const PlanProfile* profile_ = nullptr;
  std::map<uint32_t, std::shared_ptr<const Pipeline>> pipelines_;  // by kernel
  std::map<uint32_t, std::shared_ptr<GpuBuffer>> buffers_;         // by index
  std::shared_ptr<GpuBuffer> params_;
  std::shared_ptr<GpuBuffer> staging_;
  std::shared_ptr<Session> session_;
  std::map<std::vector<uint64_t>, std::weak_ptr<const OwnBindGroup>> groups_;
  std::list<Live> live_;  // the most recently played first
  std::vector<const PlanDispatch*>
      ahead_;                // whose kernels the thread compiles, last first
  bool has_failed_ = false;  // to compile one of them
  Spares spares_;            // while kernels are compiled ahead of calls
  std::unique_ptr<Background> background_;
};

}  // namespace etwgpu
