// executorch_webgpu._shim: what Python sees of the C++ code. _shim.pyi has the types.

#include "delegate/codes.h"
#include "delegate/names.h"
#include "player/convert.h"
#include "player/device_mutex.h"
#include "player/dtype.h"
#include "player/failure.h"
#include "player/process.h"
#include "player/replay.h"
#include "player/report.h"
#include "player/wgpu_api.h"
#include "python/backend.h"
#include "python/delegate.h"
#include "python/interrupt.h"
#include "python/python.h"

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/error.h>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace etwgpu {
namespace {

template <typename Handle>
Handle handle_of(uint64_t address) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(address));
}

// (op, add, count, length)
using LimitTuple = std::tuple<std::string, int64_t, int64_t, int64_t>;

// (name, is_int, buffer, dtype, storage, shape, staging offset, value, limits)
using PortTuple =
    std::tuple<std::string, bool, uint64_t, int, int, std::vector<int32_t>, uint64_t,
               int64_t, std::vector<LimitTuple>>;

// (pipeline, bind group, x, y, z, name)
using StepTuple =
    std::tuple<uint64_t, uint64_t, uint32_t, uint32_t, uint32_t, std::string>;

Port make_port(const PortTuple& tuple) {
  Port port;
  uint64_t buffer = 0;
  int dtype = 0;
  int storage = 0;
  std::vector<LimitTuple> limits;
  std::tie(port.name, port.is_int, buffer, dtype, storage, port.shape, port.offset,
           port.value, limits) = tuple;
  for (const auto& [label, add, count, length] : limits) {
    port.limits.push_back({label, add, count, length});
  }
  port.buffer = handle_of<WGPUBuffer>(buffer);
  port.dtype = port.is_int ? DType::Long : static_cast<DType>(dtype);
  port.storage = static_cast<Storage>(storage);
  for (const int32_t extent : port.shape) {
    port.numel *= static_cast<size_t>(extent);
  }
  if (!is_convertible(port.dtype, port.storage)) {
    throw py::value_error(port.name + ": scalar type " + std::to_string(dtype) +
                          " must have a GPU form");
  }
  return port;
}

std::shared_ptr<Ports> make_ports(const std::vector<PortTuple>& inputs,
                                  const std::vector<PortTuple>& outputs) {
  auto ports = std::make_shared<Ports>();
  for (const PortTuple& tuple : inputs) {
    ports->inputs.push_back(make_port(tuple));
  }
  for (const PortTuple& tuple : outputs) {
    ports->outputs.push_back(make_port(tuple));
  }
  return ports;
}

std::shared_ptr<Replay> make_replay(std::shared_ptr<Session> session,
                                    std::shared_ptr<Ports> ports,
                                    const std::vector<StepTuple>& steps,
                                    const py::bytes& params, uint64_t params_buffer,
                                    uint64_t status,
                                    std::map<int32_t, std::string> calls) {
  std::vector<Step> made;
  made.reserve(steps.size());
  for (const auto& [pipeline, group, x, y, z, name] : steps) {
    made.push_back({handle_of<WGPUComputePipeline>(pipeline),
                    handle_of<WGPUBindGroup>(group), x, y, z, name});
  }
  return std::make_shared<Replay>(std::move(session), std::move(ports), std::move(made),
                                  std::string(params),
                                  handle_of<WGPUBuffer>(params_buffer),
                                  handle_of<WGPUBuffer>(status), std::move(calls));
}

// Plays on Python's buffers.
void run_replay(Replay& replay, DeviceMutex& mutex,
                const std::vector<py::buffer>& inputs,
                const std::vector<py::buffer>& outputs) {
  const Ports& ports = replay.ports();
  if (inputs.size() != ports.inputs.size() || outputs.size() != ports.outputs.size()) {
    throw py::value_error("Replay.run: one buffer per port must be given");
  }
  std::vector<py::buffer_info> held;
  Feeds feeds;
  Fetches fetches;
  auto hold = [&](const py::buffer& buffer, const Port& port, bool writable) {
    held.push_back(buffer.request(writable));
    const size_t wanted = port.numel * scalar_size(port.dtype);
    const size_t got = static_cast<size_t>(held.back().size) *
                       static_cast<size_t>(held.back().itemsize);
    if (got != wanted) {
      throw py::value_error(port.name + ": buffer must have " + std::to_string(wanted) +
                            " bytes, got " + std::to_string(got));
    }
    return held.back().ptr;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    feeds.push_back(hold(inputs[i], ports.inputs[i], false));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    fetches.push_back(hold(outputs[i], ports.outputs[i], true));
  }
  py::gil_scoped_release release;
  DeviceGuard guard(mutex);
  replay.run(feeds, fetches);
}

// Runs a function of Python's in the device's other thread. `check` may raise, and has
// to be called for signals that are held from their handlers.
void run_in_python(DeviceMutex& mutex, py::function function, const py::object& check) {
  const py::handle owned = function.release();  // freed with the GIL, or not at all
  const GilRelease released(true);
  mutex.run(
      [owned] {
        const py::gil_scoped_acquire gil;
        py::reinterpret_steal<py::function>(owned)();
      },
      [&] {
        const py::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) {
          throw py::error_already_set();
        }
        check();
      });
}

py::object last_error_text() {
  const std::string text = last_error();
  return text.empty() ? py::object(py::none()) : py::str(text);
}

void check(Error error, const char* what) {
  if (error != Error::Ok) {
    throw Failure(code_of(error),
                  std::string(what) + ": " + executorch::runtime::to_string(error));
  }
}

BackendOption make_option(const std::string& name) {
  BackendOption option;
  store_text("an option's name", name, option.key, sizeof(option.key));
  return option;
}

void set_backend_option(const std::string& name, const py::object& value) {
  BackendOption option = make_option(name);
  store_option(option, value);
  check(executorch::runtime::set_option(kBackendId, {&option, 1}), "set_option");
}

py::object get_backend_option(const std::string& name) {
  BackendOption option = make_option(name);
  check(executorch::runtime::get_option(kBackendId, {&option, 1}), "get_option");
  return option_value(option);
}

// The thread of a device's long calls is in the interpreter's care like any other.
std::shared_ptr<const void> enter_python() {
  auto entry = std::make_shared<const Entry>();
  if (!*entry) {
    throw Failure(Code::InvalidState, "the interpreter is shutting down");
  }
  return entry;
}

// An Entry of a thread that Python has started.
struct PythonEntry {
  std::optional<Entry> held;
};

// In the child of a fork, with the GIL.
void renew_after_fork() {
  renew_entries();
  renew_main_thread();
  after_fork();
}

py::buffer_info view_of(const Lent& lent) {
  return py::buffer_info(
      const_cast<void*>(lent.data()), 1, py::format_descriptor<uint8_t>::format(), 1,
      {static_cast<py::ssize_t>(lent.size())}, {static_cast<py::ssize_t>(1)},
      /*readonly=*/true);
}

}  // namespace

PYBIND11_MODULE(_shim, m) {
  m.doc() = "ExecuTorch's BackendInterface, and the native replay of plans.";
  remember_streams();

  py::register_exception<Failure>(m, "Failure", PyExc_RuntimeError);

  py::class_<PythonEntry>(m, "Entry")
      .def(py::init<>())
      .def("__enter__",
           [](PythonEntry& entry) { return static_cast<bool>(entry.held.emplace()); })
      .def("__exit__", [](PythonEntry& entry, const py::args&) { entry.held.reset(); });

  py::class_<DeviceMutex, std::shared_ptr<DeviceMutex>>(m, "DeviceLock")
      .def(py::init([] { return std::make_shared<DeviceMutex>(&enter_python); }))
      .def("__enter__", [](DeviceMutex& mutex) { lock(mutex); })
      .def("__exit__", [](DeviceMutex& mutex, const py::args&) { mutex.unlock(); })
      .def("hold", &hold)
      .def("release", &DeviceMutex::unlock)
      .def("is_wanted", &DeviceMutex::is_wanted)
      .def("run", &run_in_python, py::arg("function"), py::arg("check"));

  py::class_<Lent, std::shared_ptr<Lent>>(m, "Lent", py::buffer_protocol())
      .def_buffer(&view_of);

  py::class_<NamedData, std::shared_ptr<NamedData>>(m, "NamedData")
      .def("get", [](const NamedData& data, const std::string& key) {
        return std::shared_ptr<Lent>(data.get(key));
      });

  py::class_<ValueLog>(m, "ValueLog")
      .def("begin", &ValueLog::begin, py::arg("name"))
      .def("end", &ValueLog::end)
      .def("value", &ValueLog::value, py::arg("name"), py::arg("dtype"),
           py::arg("shape"), py::arg("data"));

  py::class_<Ports, std::shared_ptr<Ports>>(m, "Ports")
      .def(py::init(&make_ports), py::arg("inputs"), py::arg("outputs"));

  py::class_<Session, std::shared_ptr<Session>>(m, "Session")
      .def(py::init([](std::shared_ptr<DeviceMutex> lock, uint64_t device,
                       uint64_t queue, bool is_shared) {
             auto session = std::make_shared<Session>();
             session->mutex = std::move(lock);
             session->device = handle_of<WGPUDevice>(device);
             session->queue = handle_of<WGPUQueue>(queue);
             session->is_shared = is_shared;
             session->patience.check = &check_signals;
             return session;
           }),
           py::arg("lock"), py::arg("device"), py::arg("queue"), py::arg("is_shared"))
      .def("close_inputs", &Session::close_inputs)
      .def("forget_params", &Session::forget_params)
      .def("set_timeout",
           [](Session& session, int64_t seconds) {
             session.patience.timeout = std::chrono::seconds(seconds);
           })
      .def("set_staging", [](Session& session, uint64_t buffer, uint64_t size) {
        session.staging = handle_of<WGPUBuffer>(buffer);
        session.staging_size = size;
      });

  py::class_<Replay, std::shared_ptr<Replay>>(m, "Replay")
      .def(py::init(&make_replay), py::arg("session"), py::arg("ports"),
           py::arg("steps"), py::arg("params"), py::arg("params_buffer"),
           py::arg("status"), py::arg("calls"))
      .def("record", &Replay::record)
      .def("run", &run_replay, py::arg("lock"), py::arg("inputs"), py::arg("outputs"));

  m.def("bind_wgpu", &bind_wgpu, py::arg("path"));
  m.def("open_gpu", &open_gpu);
  m.def("is_forked", &is_forked);
  m.def("leak", [](py::object object) { (void)object.release(); });
  m.def("register_backend", &register_webgpu_backend);
  m.def("register_vulkan_backend", &register_vulkan_backend);
  m.def("is_registered", &is_registered);
  m.def("last_error", &last_error_text);
  m.def("submissions", &submissions);
  m.def("upload_seconds", &upload_seconds);
  m.def("busy_seconds", &busy_seconds);
  m.def("read_seconds", &read_seconds);
  m.def("set_option", &set_backend_option, py::arg("name"), py::arg("value"));
  m.def("get_option", &get_backend_option, py::arg("name"));
  m.attr("BACKEND_ID") = kBackendId;
  m.attr("STATUS_BYTES") = kStatusBytes;
  m.def(
      "describe_report",
      [](int32_t kind, int32_t call, int32_t a, int32_t b) {
        return describe_report({kind, call, a, b});
      },
      py::arg("kind"), py::arg("call"), py::arg("a"), py::arg("b"));

  start_interrupts();
  py::module_::import("atexit").attr("register")(py::cpp_function(&close_entries));
  const py::module_ os = py::module_::import("os");
  if (py::hasattr(os, "register_at_fork")) {
    os.attr("register_at_fork")(py::arg("after_in_child") =
                                    py::cpp_function(&renew_after_fork));
  }
}

}  // namespace etwgpu
