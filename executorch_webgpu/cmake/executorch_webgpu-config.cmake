# The WebGPU backend for C++ apps over ExecuTorch's Module.
#
#   find_package(executorch_webgpu REQUIRED)
#   target_link_libraries(app PRIVATE executorch_webgpu::backend)
#
# That is all an app needs: it has ExecuTorch's runtime and headers, this backend, which
# registers itself, and a WebGPU library. No path of the machine that built the package
# is in here. What is looked for elsewhere:
#   executorch_DIR  the CMake package of the executorch wheel; beside this one if not set
#   WGPU_LIBRARY    a WebGPU library to link; that of the wgpu wheel beside this one if
#                   not set. With NONE, the app links one itself, or names it at run time
#                   (ET_WEBGPU_LIBRARY).
cmake_minimum_required(VERSION 3.28)
include(CMakeFindDependencyMacro)

get_filename_component(_executorch_webgpu_root "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
get_filename_component(_executorch_webgpu_site "${_executorch_webgpu_root}/.." ABSOLUTE)

if(NOT TARGET executorch::runtime)
  if(NOT executorch_DIR AND EXISTS "${_executorch_webgpu_site}/executorch/share/cmake")
    set(executorch_DIR "${_executorch_webgpu_site}/executorch/share/cmake")
  endif()
  find_dependency(executorch)
endif()

set(_executorch_webgpu_library
    "${_executorch_webgpu_root}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}executorch_backend_webgpu${CMAKE_SHARED_LIBRARY_SUFFIX}"
)
if(NOT EXISTS "${_executorch_webgpu_library}")
  set(executorch_webgpu_FOUND FALSE)
  set(executorch_webgpu_NOT_FOUND_MESSAGE
      "executorch_webgpu: ${_executorch_webgpu_library} must exist, got none"
  )
  return()
endif()

set(WGPU_LIBRARY "" CACHE FILEPATH "The WebGPU library that apps link, or NONE")
set(_executorch_webgpu_wgpu "${WGPU_LIBRARY}")
if(NOT _executorch_webgpu_wgpu)
  set(_executorch_webgpu_wgpu
      "${_executorch_webgpu_site}/wgpu/resources/libwgpu_native-release${CMAKE_SHARED_LIBRARY_SUFFIX}"
  )
endif()

if(NOT TARGET executorch_webgpu::library)
  add_library(executorch_webgpu::library SHARED IMPORTED)
  set_target_properties(
    executorch_webgpu::library PROPERTIES IMPORTED_LOCATION "${_executorch_webgpu_library}"
  )
  # wgpu-native's has no name of its own: linked by path, the path would be kept.
  if(EXISTS "${_executorch_webgpu_wgpu}")
    add_library(executorch_webgpu::wgpu SHARED IMPORTED)
    set_target_properties(
      executorch_webgpu::wgpu
      PROPERTIES IMPORTED_LOCATION "${_executorch_webgpu_wgpu}" IMPORTED_NO_SONAME ON
    )
  endif()

  # Nothing refers to the libraries by name: without this the linker leaves them out.
  add_library(executorch_webgpu::backend INTERFACE IMPORTED)
  set(_executorch_webgpu_linked executorch_webgpu::library)
  if(TARGET executorch_webgpu::wgpu)
    list(APPEND _executorch_webgpu_linked executorch_webgpu::wgpu)
  endif()
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(_executorch_webgpu_linked "-Wl,--push-state,--no-as-needed"
                                  ${_executorch_webgpu_linked} "-Wl,--pop-state"
    )
  endif()
  set_target_properties(
    executorch_webgpu::backend
    PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_executorch_webgpu_root}/include"
               INTERFACE_LINK_LIBRARIES "${_executorch_webgpu_linked};executorch::runtime"
  )
endif()
set(executorch_webgpu_FOUND TRUE)
