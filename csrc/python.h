// How native code meets the interpreter: who may enter it, and what becomes of
// its exceptions.

#pragma once

#include <pybind11/pybind11.h>

#include <streambuf>
#include <string>

#include "failure.h"
#include "replay.h"

namespace etwgpu {

namespace py = pybind11;

// A Python exception as plain data, so that it can leave the GIL behind.
class PythonFailure : public Failure {
 public:
  PythonFailure(Error code, const std::string& text, std::string traceback)
      : Failure(code, text), traceback_(std::move(traceback)) {}
  const std::string& traceback() const { return traceback_; }

 private:
  std::string traceback_;
};

// Permission to use the interpreter. None is given once it shuts down: taking
// the GIL then would end the thread in the middle of C++ code.
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

// Called with no permission held, before going back to the caller. Once the
// interpreter shuts down, only daemon threads are left besides the one that ends
// the process, and Python kills each as it asks for the GIL: in the middle of C++
// code that aborts the process. So they stop here for good, as newer Pythons stop
// them; others return.
void stop_if_left_behind();

// Gives no permission from now on, and waits for those who have it, and a moment
// for those who had it. The caller holds the GIL; it is released while waiting.
void close_entries();

// While it lives, other threads may run Python. ExecuTorch's bindings point
// std::cout at a buffer on their stack for the time of a call, and rely on the
// GIL to undo that in order; so the streams get the process's own buffers first,
// and the caller's back after. Made and destroyed with the GIL or not at all.
class Yielding {
 public:
  Yielding();
  ~Yielding();
  Yielding(const Yielding&) = delete;
  Yielding& operator=(const Yielding&) = delete;

 private:
  bool active_;
  std::streambuf* out_ = nullptr;
  std::streambuf* error_ = nullptr;
};

// Called when the module is loaded: the buffers of now are the process's own.
void remember_streams();

// Holds a device's mutex. A thread never waits for it with the GIL: the holder
// may need the GIL to finish.
class DeviceGuard {
 public:
  explicit DeviceGuard(DeviceMutex& mutex);
  ~DeviceGuard() { mutex_.unlock(); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  DeviceMutex& mutex_;
};

// Releases the GIL if this thread holds it and `wanted`.
class MaybeReleased {
 public:
  explicit MaybeReleased(bool wanted)
      : state_(wanted && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~MaybeReleased() {
    if (state_ != nullptr) {
      PyEval_RestoreThread(state_);
    }
  }
  MaybeReleased(const MaybeReleased&) = delete;
  MaybeReleased& operator=(const MaybeReleased&) = delete;

 private:
  Yielding yielding_;
  PyThreadState* state_;
};

// The exception as data; the caller holds the GIL.
PythonFailure failure_of(py::error_already_set& exception);

// Runs `function` with the GIL; a Python exception leaves as PythonFailure.
template <typename Function>
auto with_python(Function&& function) {
  const Yielding yielding;
  py::gil_scoped_acquire gil;
  try {
    return function();
  } catch (py::error_already_set& exception) {
    throw failure_of(exception);
  }
}

// One log line, the text for last_error(), and a record for Python's logger.
void report(const std::string& where, Error code, const std::string& text,
            const std::string& traceback) noexcept;

// The full text of the last failure of any thread; "" if there was none.
std::string last_error();

}  // namespace etwgpu
