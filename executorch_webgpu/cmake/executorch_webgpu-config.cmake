# The WebGPU backend for C++ apps over ExecuTorch's Module.
#
#   find_package(executorch_webgpu REQUIRED)
#   target_link_libraries(app PRIVATE executorch_webgpu::backend)
#
# That is all an app needs: it has ExecuTorch's runtime and headers, this backend, which
# registers itself, and a WebGPU library. executorch_webgpu::backend_static is the same as
# a part of the app. No path of the machine that built the package is in here. What is
# looked for elsewhere:
#   executorch_DIR  the CMake package of the executorch wheel; beside this one if not set
#   WGPU_LIBRARY    a WebGPU library to link; that of the wgpu wheel beside this one if
#                   not set. With NONE, the app links one itself, or names it at run time
#                   (ET_WEBGPU_LIBRARY).
# This file is in the wheel, and where the backend was built from sources and installed;
# there it has the targets of that build beside it.
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

set(executorch_webgpu_problem "")
if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/executorch_webgpu-targets.cmake")
  find_dependency(Threads)
  include("${CMAKE_CURRENT_LIST_DIR}/executorch_webgpu-targets.cmake")
elseif(NOT TARGET executorch_webgpu::library)
  set(_executorch_webgpu_library
      "${_executorch_webgpu_root}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}executorch_backend_webgpu${CMAKE_SHARED_LIBRARY_SUFFIX}"
  )
  if(EXISTS "${_executorch_webgpu_library}")
    add_library(executorch_webgpu::library SHARED IMPORTED)
    set_target_properties(
      executorch_webgpu::library
      PROPERTIES IMPORTED_LOCATION "${_executorch_webgpu_library}"
                 INTERFACE_INCLUDE_DIRECTORIES "${_executorch_webgpu_root}/include"
    )
  else()
    set(executorch_webgpu_problem "${_executorch_webgpu_library} must exist, got none")
  endif()
  # As CMakeLists.txt calls it.
  set(_executorch_webgpu_archive executorch_backend_webgpu)
  if(WIN32)
    set(_executorch_webgpu_archive executorch_backend_webgpu_static)
  endif()
  set(_executorch_webgpu_archive
      "${_executorch_webgpu_root}/lib/${CMAKE_STATIC_LIBRARY_PREFIX}${_executorch_webgpu_archive}${CMAKE_STATIC_LIBRARY_SUFFIX}"
  )
  if(EXISTS "${_executorch_webgpu_archive}")
    find_dependency(Threads)
    add_library(executorch_webgpu::archive STATIC IMPORTED)
    set_target_properties(
      executorch_webgpu::archive
      PROPERTIES IMPORTED_LOCATION "${_executorch_webgpu_archive}"
                 INTERFACE_INCLUDE_DIRECTORIES "${_executorch_webgpu_root}/include"
                 INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS};Threads::Threads"
    )
  endif()
endif()

if(NOT executorch_webgpu_problem)
  set(executorch_webgpu_scope "")
  set(executorch_webgpu_beside
      "${_executorch_webgpu_site}/wgpu/resources/libwgpu_native-release${CMAKE_SHARED_LIBRARY_SUFFIX}"
  )
  include("${CMAKE_CURRENT_LIST_DIR}/executorch_webgpu-link.cmake")
endif()
if(executorch_webgpu_problem)
  set(executorch_webgpu_FOUND FALSE)
  set(executorch_webgpu_NOT_FOUND_MESSAGE
      "executorch_webgpu: ${executorch_webgpu_problem}"
  )
  return()
endif()
set(executorch_webgpu_FOUND TRUE)
