// How C++ uses the interpreter: when it may, how it takes and releases the GIL, and
// what becomes of exceptions.

#pragma once

#include "player/device_mutex.h"
#include "player/failure.h"

#include <pybind11/pybind11.h>

#include <streambuf>
#include <string>
#include <utility>

namespace etwgpu {

namespace py = pybind11;

// A Python exception as plain data, which needs no GIL.
class PythonFailure : public Failure {
 public:
  PythonFailure(Code code, const std::string& text, std::string traceback)
      : Failure(code, text), traceback_(std::move(traceback)) {}
  const std::string& traceback() const { return traceback_; }

 private:
  std::string traceback_;
};

// Permission to use the interpreter, for as long as it lives; false once the
// interpreter shuts down, because taking the GIL then would end the thread in the
// middle of C++ code.
class Entry {
 public:
  Entry();
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  explicit operator bool() const { return open_; }

 private:
  bool open_;
};

// Whether this thread has an Entry.
bool is_entered();

// Called in the child of a fork: forgets the threads that it does not have, and the
// locks that they may hold.
void renew_entries();

// Called without an Entry, before returning to ExecuTorch. Once the interpreter shuts
// down, only daemon threads are left besides the one that ends the process, and Python
// ends each as it asks for the GIL, which in the middle of C++ code aborts the process.
// So such a thread sleeps here for good, as newer Pythons let it; others return.
void park_after_shutdown();

// Gives no Entry from now on, waits for those that live, and a moment for threads that
// had one. The caller holds the GIL; it is released while waiting.
void close_entries();

// Gives std::cout and std::cerr the process's own buffers while other threads may run
// Python. ExecuTorch's bindings point them at buffers on the stack for the time of a
// call, and rely on the GIL to undo that in order. Acts only in a thread that holds
// the GIL, which must hold it again when this goes.
class StreamGuard {
 public:
  StreamGuard();
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  bool active_;
  std::streambuf* out_ = nullptr;
  std::streambuf* error_ = nullptr;
};

// Called when the module is loaded, while the streams have the process's own buffers.
void remember_streams();

// Whether a call of ExecuTorch's bindings has the streams.
bool has_redirected_streams();

// Locks the mutex, as is necessary to build or play anything of its device, or holds
// it, which is enough to free something. A thread never waits with the GIL: the holder
// may need the GIL to finish. Both throw what check_process() and check_signals()
// throw.
void lock(DeviceMutex& mutex);
void hold(DeviceMutex& mutex);

class DeviceGuard {
 public:
  explicit DeviceGuard(DeviceMutex& mutex) : mutex_(mutex) { lock(mutex); }
  ~DeviceGuard() { mutex_.unlock(); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  DeviceMutex& mutex_;
};

// Releases the GIL if `wanted` and this thread holds it.
class GilRelease {
 public:
  explicit GilRelease(bool wanted)
      : state_(wanted && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~GilRelease() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  StreamGuard streams_;
  PyThreadState* state_;
};

// The Python half of the delegate; the caller holds the GIL.
py::module_ runtime_module();

// The exception as data; the caller holds the GIL.
PythonFailure failure_of(py::error_already_set& exception);

// Runs `function` with the GIL; a Python exception leaves as PythonFailure.
template <typename Function>
auto with_python(Function&& function) {
  const StreamGuard streams;
  py::gil_scoped_acquire gil;
  try {
    return function();
  } catch (py::error_already_set& exception) {
    throw failure_of(exception);
  }
}

// Tells of a failure: one log line, the text of last_error(), and a record for Python's
// logger.
void report(const std::string& where, Code code, const std::string& text,
            const std::string& traceback) noexcept;

// The full text of the last failure of any thread; "" if there was none.
std::string last_error();

}  // namespace etwgpu
