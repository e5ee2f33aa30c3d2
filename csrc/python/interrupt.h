// Exceptions that mean the program and not only one call: KeyboardInterrupt, which is
// what Ctrl-C becomes, and SystemExit.
//
// ExecuTorch knows error codes only. So such an exception is kept while the call
// returns a code, and raised again as soon as its thread is back in Python: in place of
// what ExecuTorch's bindings make of the code, or else by Python's next instructions.

#pragma once

#include <pybind11/pybind11.h>

namespace etwgpu {

// Keeps an exception of this kind. Python runs signal handlers in the main thread
// alone; what other threads raise is an error like all others. With the GIL.
void keep_interrupt(const pybind11::error_already_set& exception);

// Called last before a call returns to ExecuTorch: has Python raise what was kept.
void raise_interrupt_later();

// Runs the handlers of signals that have arrived, if this is the main thread. What a
// handler raises leaves as PythonFailure.
void check_signals();

// Called when the module is loaded, and with the GIL in the child of a fork, whose only
// thread is its main one.
void start_interrupts();
void renew_main_thread();

}  // namespace etwgpu
