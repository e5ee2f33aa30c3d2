#include "python/backend.h"

#include "delegate/codes.h"
#include "delegate/names.h"
#include "player/failure.h"
#include "player/process.h"
#include "python/delegate.h"
#include "python/interrupt.h"
#include "python/python.h"

#include <executorch/runtime/backend/backend_execution_context.h>
#include <executorch/runtime/backend/backend_init_context.h>
#include <executorch/runtime/backend/backend_option_context.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/array_ref.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/result.h>
#include <executorch/runtime/core/span.h>
#include <executorch/runtime/platform/log.h>

#include <pybind11/pybind11.h>

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace etwgpu {
namespace {

using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::BackendOptionContext;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Result;

// Runs `function` with an Entry; whatever goes wrong leaves as an Error and one log
// line.
template <typename Function>
Error run_entered(const char* what, const char* method, Function&& function) {
  const Entry entry;
  if (!entry) {
    park_after_shutdown();
    ET_LOG(Error, "%s: %s: the interpreter is shutting down", kBackendId, what);
    return Error::InvalidState;
  }
  std::string where = what;
  try {
    if (method != nullptr) {
      where += std::string(" of ") + method;
    }
    check_process();
    function();
    return Error::Ok;
  } catch (const PythonFailure& failure) {
    report(where, failure.code(), failure.what(), failure.traceback());
    return error_of(failure.code());
  } catch (const Failure& failure) {
    report(where, failure.code(), failure.what(), "");
    return error_of(failure.code());
  } catch (const std::bad_alloc&) {
    report(where, Code::MemoryAllocationFailed, "out of host memory", "");
    return Error::MemoryAllocationFailed;
  } catch (const std::exception& exception) {
    report(where, Code::Internal, exception.what(), "");
    return Error::Internal;
  }
}

// The same, and does not return in a thread that the interpreter has left behind.
template <typename Function>
Error guarded(const char* what, const char* method, Function&& function) noexcept {
  const Error error = run_entered(what, method, std::forward<Function>(function));
  park_after_shutdown();
  raise_interrupt_later();
  return error;
}

class WebGPUBackend final : public BackendInterface {
 public:
  explicit WebGPUBackend(Origin origin) : origin_(origin) {}

  bool is_available() const override {
    bool available = false;
    const Error error = guarded("is_available", nullptr, [&] {
      available = with_python(
          [] { return runtime_module().attr("is_available")().cast<bool>(); });
    });
    return error == Error::Ok && available;
  }

  Result<DelegateHandle*> init(BackendInitContext& context, FreeableBuffer* processed,
                               ArrayRef<CompileSpec> compile_specs) const override {
    const char* method = context.get_method_name();
    Delegate* delegate = nullptr;
    const Error error = guarded("init", method, [&] {
      with_python([&] {
        delegate = new Delegate(origin_, method == nullptr ? "" : method,
                                std::move(*processed), compile_specs,
                                context.runtime_specs(), context.get_named_data_map());
      });
    });
    if (error != Error::Ok) {
      return error;
    }
    return delegate;
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle,
                Span<EValue*> args) const override {
    Delegate* delegate = static_cast<Delegate*>(handle);
    return guarded("execute", delegate->method().c_str(),
                   [&] { delegate->execute(args, context.event_tracer()); });
  }

  void destroy(DelegateHandle* handle) const override {
    Delegate* delegate = static_cast<Delegate*>(handle);
    if (delegate == nullptr || is_forked() || !Entry()) {
      // The process is ending, or the GPU objects are another's: the delegate is
      // leaked, as its Python objects must be.
      park_after_shutdown();
      return;
    }
    (void)guarded("destroy", delegate->method().c_str(), [&] {
      with_python([&] {
        const std::unique_ptr<Delegate> owner(delegate);
        owner->close();
      });
    });
  }

  Error set_option(BackendOptionContext&, const Span<BackendOption>& options) override {
    return guarded("set_option", nullptr, [&] {
      with_python([&] {
        py::dict values;
        for (const BackendOption& option : options) {
          values[option.key] = option_value(option);
        }
        runtime_module().attr("set_options")(values);
      });
    });
  }

  Error get_option(BackendOptionContext&, Span<BackendOption>& options) override {
    return guarded("get_option", nullptr, [&] {
      with_python([&] {
        for (BackendOption& option : options) {
          store_option(option, runtime_module().attr("get_option")(option.key));
        }
      });
    });
  }

 private:
  const Origin origin_;
};

// Never destroyed: ExecuTorch's registry keeps the pointers to the end.
WebGPUBackend& instance() {
  static WebGPUBackend* backend = new WebGPUBackend(Origin::WebGPU);
  return *backend;
}

WebGPUBackend& vulkan_instance() {
  static WebGPUBackend* backend = new WebGPUBackend(Origin::Vulkan);
  return *backend;
}

void add_to_registry(const char* id, BackendInterface* backend) {
  const Error error = executorch::runtime::register_backend({id, backend});
  if (error != Error::Ok) {
    throw Failure(code_of(error), std::string("executorch_webgpu: registration of ") +
                                      id + " must succeed, got " +
                                      executorch::runtime::to_string(error));
  }
}

}  // namespace

bool is_registered() {
  return executorch::runtime::get_backend_class(kBackendId) == &instance();
}

void register_webgpu_backend() {
  BackendInterface* existing = executorch::runtime::get_backend_class(kBackendId);
  if (existing == &instance()) {
    return;
  }
  if (existing != nullptr) {
    throw Failure(Code::RegistrationAlreadyRegistered,
                  std::string("executorch_webgpu: backend id ") + kBackendId +
                      " must be free, got one that another library has registered");
  }
  add_to_registry(kBackendId, &instance());
}

bool register_vulkan_backend() {
  BackendInterface* existing = executorch::runtime::get_backend_class(kVulkanId);
  if (existing == nullptr) {
    add_to_registry(kVulkanId, &vulkan_instance());
    return true;
  }
  return existing == &vulkan_instance();
}

}  // namespace etwgpu
