// ExecuTorch's BackendInterface over the player, for processes without Python.

#include "delegate/codes.h"
#include "delegate/log.h"
#include "delegate/names.h"
#include "delegate/options.h"
#include "delegate/player_delegate.h"
#include "executorch_webgpu/backend.h"
#include "player/adapter.h"
#include "player/failure.h"
#include "player/process.h"
#include "player/wgpu_api.h"

#include <executorch/runtime/backend/backend_execution_context.h>
#include <executorch/runtime/backend/backend_init_context.h>
#include <executorch/runtime/backend/backend_option_context.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/array_ref.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>

namespace etwgpu {
namespace {

using executorch::runtime::ArrayRef;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::BackendOptionContext;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;

thread_local std::string last_error;

void tell(const std::string& where, Code code, const std::string& text) noexcept {
  try {
    log_failure(where, code, text);
    last_error = printable(where + ": " + text);
  } catch (const std::exception&) {
    // No memory for words: the code has to do.
  }
}

// Runs `function`; whatever goes wrong leaves as an Error and one log line.
template <typename Function>
Error guarded(const char* what, const char* method, Function&& function) noexcept {
  std::string where;
  try {
    where = method == nullptr ? what : std::string(what) + " of " + method;
    last_error.clear();
    check_process();
    function();
    return Error::Ok;
  } catch (const Failure& failure) {
    tell(where, failure.code(), failure.what());
    return error_of(failure.code());
  } catch (const std::bad_alloc&) {
    tell(where, Code::MemoryAllocationFailed, "out of host memory");
    return Error::MemoryAllocationFailed;
  } catch (const std::exception& exception) {
    tell(where, Code::Internal, exception.what());
    return Error::Internal;
  }
}

// All that is loaded. Never destroyed: threads may use it while the process ends.
struct Loaded {
  std::mutex mutex;
  std::set<std::shared_ptr<PlayerDelegate>> delegates;
};

Loaded& loaded() {
  static auto* instance = new Loaded();
  return *instance;
}

// A delegate as ExecuTorch holds it.
using Handle = std::shared_ptr<PlayerDelegate>;

class PlayerBackend final : public BackendInterface {
 public:
  bool is_available() const override {
    // ExecuTorch asks for every method, and listing adapters opens all drivers. Which
    // one is wanted is known at init().
    static std::mutex mutex;
    static bool is_found = false;
    const Error error = guarded("is_available", nullptr, [] {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!is_found) {
        open_gpu();
        open_wgpu();
        (void)choose_adapter("");
        is_found = true;
      }
    });
    return error == Error::Ok;
  }

  Result<DelegateHandle*> init(BackendInitContext& context, FreeableBuffer* processed,
                               ArrayRef<CompileSpec>) const override {
    const char* method = context.get_method_name();
    std::unique_ptr<Handle> handle;
    const Error error = guarded("init", method, [&] {
      const PlayerOptions options = current_options(context.runtime_specs());
      handle = std::make_unique<Handle>(std::make_shared<PlayerDelegate>(
          method == nullptr ? "" : method, processed->data(), processed->size(),
          options, context.get_named_data_map()));
      const std::lock_guard<std::mutex> lock(loaded().mutex);
      loaded().delegates.insert(*handle);
    });
    if (error != Error::Ok) {
      return error;
    }
    processed->Free();
    return handle.release();
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle,
                Span<EValue*> args) const override {
    PlayerDelegate& delegate = **static_cast<Handle*>(handle);
    return guarded("execute", delegate.method().c_str(),
                   [&] { delegate.execute(args, context.event_tracer()); });
  }

  void destroy(DelegateHandle* handle) const override {
    if (handle == nullptr || is_forked()) {
      return;  // what the GPU objects are another process's stays
    }
    const std::unique_ptr<Handle> owner(static_cast<Handle*>(handle));
    (void)guarded("destroy", nullptr, [&] {
      const std::lock_guard<std::mutex> lock(loaded().mutex);
      loaded().delegates.erase(*owner);
    });
  }

  Error set_option(BackendOptionContext&, const Span<BackendOption>& options) override {
    return guarded("set_option", nullptr, [&] {
      if (set_options({options.data(), options.size()})) {
        std::set<Handle> all;
        {
          const std::lock_guard<std::mutex> lock(loaded().mutex);
          all = loaded().delegates;
        }
        for (const Handle& delegate : all) {
          delegate->reset_state();
        }
      }
    });
  }

  Error get_option(BackendOptionContext&, Span<BackendOption>& options) override {
    return guarded("get_option", nullptr, [&] {
      for (BackendOption& option : options) {
        etwgpu::get_option(option);
      }
    });
  }
};

// Never destroyed: ExecuTorch's registry keeps the pointer to the end.
PlayerBackend& instance_of_backend() {
  static auto* backend = new PlayerBackend();
  return *backend;
}

}  // namespace
}  // namespace etwgpu

extern "C" void executorch_webgpu_register(void) {
  using executorch::runtime::get_backend_class;
  // Where Python has registered the backend, its programs run there.
  if (get_backend_class(etwgpu::kBackendId) == nullptr) {
    (void)executorch::runtime::register_backend(
        {etwgpu::kBackendId, &etwgpu::instance_of_backend()});
  }
}

extern "C" const char* executorch_webgpu_last_error(void) {
  return etwgpu::last_error.c_str();
}

namespace {

// Before main(), or when the library is loaded.
[[maybe_unused]] const bool is_registered = [] {
  executorch_webgpu_register();
  return true;
}();

}  // namespace
