#include "python/python.h"

#include "delegate/codes.h"
#include "delegate/log.h"
#include "delegate/names.h"
#include "player/failure.h"
#include "player/process.h"
#include "python/interrupt.h"

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/platform/log.h>

#include <pybind11/pybind11.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <iostream>
#include <mutex>
#include <new>
#include <streambuf>
#include <string>
#include <thread>

namespace etwgpu {
namespace {

// The module whose functions the shim calls.
constexpr const char kRuntimeModule[] = "executorch_webgpu.runtime.delegate";

// Counts entries, and closes when the interpreter shuts down.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> closed{false};
  std::thread::id closer;  // written before `closed`
  size_t inside = 0;       // entries that live
  size_t visitors = 0;     // threads that have had one and are alive
};

// Never destroyed, nor are the other objects here: threads may use them while the
// process ends.
Gate& gate() {
  static Gate* instance = new Gate();
  return *instance;
}

// Of each thread: whether it counts among the visitors. One without a Python state is
// none: Python does not end it, so it may return to its caller.
struct Visitor {
  bool counted = false;
  size_t inside = 0;  // its entries that live

  void count() {
    if (!counted && PyGILState_GetThisThreadState() != nullptr) {
      counted = true;
      ++gate().visitors;
    }
  }

  void leave() {
    if (counted) {
      std::lock_guard<std::mutex> lock(gate().mutex);
      counted = false;
      --gate().visitors;
      gate().changed.notify_all();
    }
  }

  ~Visitor() { leave(); }
};

thread_local Visitor visitor;

struct LastError {
  std::mutex mutex;
  std::string text;
};

LastError& last() {
  static LastError* instance = new LastError();
  return *instance;
}

struct Streams {
  std::streambuf* out;
  std::streambuf* error;
};

const Streams& process_streams() {
  static const Streams streams{std::cout.rdbuf(), std::cerr.rdbuf()};
  return streams;
}

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

Code code_named(const std::string& name) {
  static constexpr Error kCodes[] = {
      Error::Internal,
      Error::InvalidState,
      Error::NotSupported,
      Error::NotImplemented,
      Error::InvalidArgument,
      Error::InvalidType,
      Error::NotFound,
      Error::MemoryAllocationFailed,
      Error::AccessFailed,
      Error::InvalidProgram,
      Error::InvalidExternalData,
      Error::OutOfResources,
      Error::DelegateInvalidCompatibility,
      Error::DelegateMemoryAllocationFailed,
      Error::DelegateInvalidHandle,
  };
  for (const Error code : kCodes) {
    // to_string() gives "Error::Name".
    const std::string known = executorch::runtime::to_string(code);
    if (known == "Error::" + name) {
      return code_of(code);
    }
  }
  return Code::Internal;
}

void tell_logger(const std::string& record) noexcept {
  try {
    with_python([&] { runtime_module().attr("log_failure")(record); });
  } catch (const std::exception& exception) {
    ET_LOG(Error, "%s: log: %s", kBackendId, exception.what());
  }
}

// Calls `attempt` with the time that it may take, until it returns true.
template <typename Attempt>
void try_until_true(const Attempt& attempt) {
  constexpr std::chrono::milliseconds kSignalPeriod(50);
  check_process();
  if (attempt(std::chrono::milliseconds(0))) {
    return;
  }
  const GilRelease released(true);
  while (!attempt(kSignalPeriod)) {
    check_signals();
  }
}

}  // namespace

Entry::Entry() {
  std::lock_guard<std::mutex> lock(gate().mutex);
  open_ = !gate().closed && Py_IsInitialized() && !is_finalizing();
  if (open_) {
    ++gate().inside;
    ++visitor.inside;
    visitor.count();
  }
}

Entry::~Entry() {
  if (open_) {
    std::lock_guard<std::mutex> lock(gate().mutex);
    --gate().inside;
    --visitor.inside;
    gate().changed.notify_all();
  }
}

bool is_entered() { return visitor.inside > 0; }

void renew_entries() {
  new (&gate()) Gate();
  gate().inside = visitor.inside;
  gate().visitors = visitor.counted;
  new (&last().mutex) std::mutex();
}

void park_after_shutdown() {
  if (!gate().closed || gate().closer == std::this_thread::get_id() ||
      !visitor.counted) {
    return;
  }
  if (PyGILState_Check()) {
    PyEval_SaveThread();
  }
  visitor.leave();
  for (;;) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

void close_entries() {
  // A GPU that hangs must not keep the process from ending; one that compiles may.
  constexpr std::chrono::seconds kEntryTimeout(60);
  // Between two calls a thread is in the bindings of ExecuTorch and torch, which take
  // the GIL inside C++ too; it gets this long to come back here and be parked.
  constexpr std::chrono::milliseconds kVisitorTimeout(200);
  py::gil_scoped_release release;
  std::unique_lock<std::mutex> lock(gate().mutex);
  gate().closer = std::this_thread::get_id();
  gate().closed = true;
  gate().changed.wait_for(lock, kEntryTimeout, [] { return gate().inside == 0; });
  const size_t self = visitor.counted;
  gate().changed.wait_for(lock, kVisitorTimeout,
                          [&] { return gate().visitors == self; });
}

StreamGuard::StreamGuard() : active_(PyGILState_Check()) {
  if (active_) {
    out_ = std::cout.rdbuf(process_streams().out);
    error_ = std::cerr.rdbuf(process_streams().error);
  }
}

StreamGuard::~StreamGuard() {
  if (active_) {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(error_);
  }
}

void remember_streams() { (void)process_streams(); }

bool has_redirected_streams() { return std::cerr.rdbuf() != process_streams().error; }

void lock(DeviceMutex& mutex) {
  try_until_true([&](auto time) { return mutex.try_lock_for(time); });
}

void hold(DeviceMutex& mutex) {
  try_until_true([&](auto time) { return mutex.try_hold_for(time); });
}

py::module_ runtime_module() { return py::module_::import(kRuntimeModule); }

PythonFailure failure_of(py::error_already_set& exception) {
  keep_interrupt(exception);
  const py::object& value = exception.value();
  Code code = Code::Internal;
  std::string text;
  std::string traceback;
  try {
    text = py::str(value);
    if (py::hasattr(value, "code") && py::isinstance<py::str>(value.attr("code"))) {
      code = code_named(py::str(value.attr("code")));
    } else if (exception.matches(PyExc_MemoryError)) {
      code = Code::MemoryAllocationFailed;
      text = "out of host memory";
    } else {
      text = std::string(py::str(exception.type().attr("__name__"))) + ": " + text;
    }
    // None where the handler of a signal has raised: no code of ours was running.
    const py::object trace = exception.trace() ? exception.trace() : py::none();
    py::list lines = py::module_::import("traceback")
                         .attr("format_exception")(exception.type(), value, trace);
    traceback = py::str(py::str("").attr("join")(lines));
  } catch (py::error_already_set& nested) {
    keep_interrupt(nested);
    text = "the exception cannot be printed: " + std::string(nested.what());
  }
  return PythonFailure(code, text, traceback);
}

void report(const std::string& where, Code code, const std::string& text,
            const std::string& traceback) noexcept {
  try {
    const std::string shown = printable(where + ": " + text);
    log_failure(where, code, text);
    const std::string record = std::string(kBackendId) + ": " + shown +
                               (traceback.empty() ? "" : "\n" + printable(traceback));
    {
      std::lock_guard<std::mutex> lock(last().mutex);
      last().text = record;
    }
    tell_logger(record);
  } catch (const std::exception& exception) {
    ET_LOG(Error, "%s: report: %s", kBackendId, exception.what());
  }
}

std::string last_error() {
  std::lock_guard<std::mutex> lock(last().mutex);
  return last().text;
}

}  // namespace etwgpu
