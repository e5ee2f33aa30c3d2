#include "python/interrupt.h"

#include "python/python.h"

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

namespace etwgpu {
namespace {

unsigned long g_main_thread = 0;

PyObject* g_kept = nullptr;  // used by the main thread alone, with the GIL

bool is_main_thread() { return PyThread_get_thread_ident() == g_main_thread; }

bool raise_kept() {
  if (g_kept == nullptr || !is_main_thread()) {
    return false;
  }
  PyObject* value = std::exchange(g_kept, nullptr);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value)), value);
  Py_DECREF(value);
  return true;
}

// Python's own call, between two instructions of the main thread. Inside an entry,
// such as one that frees what was loaded, it would stop what must come to its end.
int raise_between_calls(void*) {
  if (has_redirected_streams()) {
    // ExecuTorch's call has not returned: its log is Python, and may not raise.
    (void)Py_AddPendingCall(&raise_between_calls, nullptr);
    return 0;
  }
  return !is_entered() && raise_kept() ? -1 : 0;
}

// pybind11 shows an exception to the translators of all modules, the last one first.
void translate(std::exception_ptr exception) {
  if (!raise_kept()) {
    std::rethrow_exception(exception);
  }
}

}  // namespace

void keep_interrupt(const py::error_already_set& exception) {
  if (!is_main_thread() || exception.matches(PyExc_Exception)) {
    return;
  }
  py::object value = exception.value();
  if (exception.trace()) {
    (void)PyException_SetTraceback(value.ptr(), exception.trace().ptr());
  }
  Py_XDECREF(std::exchange(g_kept, value.release().ptr()));
}

void raise_interrupt_later() {
  if (is_main_thread() && g_kept != nullptr) {
    // Fails if 32 calls are waiting: then one more signal does the same.
    if (Py_AddPendingCall(&raise_between_calls, nullptr) != 0) {
      PyErr_SetInterrupt();
    }
  }
}

void check_signals() {
  if (is_main_thread()) {
    with_python([] {
      if (PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
      }
    });
  }
}

void start_interrupts() {
  const py::object thread = py::module_::import("threading").attr("main_thread")();
  g_main_thread = thread.attr("ident").cast<unsigned long>();
  py::register_exception_translator(&translate);
}

void renew_main_thread() { g_main_thread = PyThread_get_thread_ident(); }

}  // namespace etwgpu
