# What an app links, however the backend got here: by find_package() or with its sources.
#
# Enters: the target executorch_webgpu::library and, where it was built,
# executorch_webgpu::archive; executorch_webgpu_scope, "" or GLOBAL, of the new targets;
# executorch_webgpu_beside, the WebGPU library that is linked if WGPU_LIBRARY names none.
# Leaves: executorch_webgpu::backend and executorch_webgpu::backend_static, or
# executorch_webgpu_problem.

# A text: as a FILEPATH, NONE would become one.
set(WGPU_LIBRARY "" CACHE STRING "The WebGPU library that apps link, or NONE")
set(executorch_webgpu_problem "")
set(_executorch_webgpu_wgpu "")
if(WGPU_LIBRARY STREQUAL "")
  if(EXISTS "${executorch_webgpu_beside}")
    set(_executorch_webgpu_wgpu "${executorch_webgpu_beside}")
  endif()
elseif(EXISTS "${WGPU_LIBRARY}")
  set(_executorch_webgpu_wgpu "${WGPU_LIBRARY}")
elseif(NOT WGPU_LIBRARY STREQUAL "NONE")
  set(executorch_webgpu_problem
      "WGPU_LIBRARY must be a WebGPU library or NONE, got '${WGPU_LIBRARY}'"
  )
endif()

if(_executorch_webgpu_wgpu AND NOT TARGET executorch_webgpu::wgpu)
  # wgpu-native's has no name of its own: linked by path, the path would be kept.
  add_library(executorch_webgpu::wgpu SHARED IMPORTED ${executorch_webgpu_scope})
  set_target_properties(
    executorch_webgpu::wgpu
    PROPERTIES IMPORTED_LOCATION "${_executorch_webgpu_wgpu}" IMPORTED_NO_SONAME ON
  )
endif()

# Nothing refers to shared libraries by name, nor to what is in the archive: without more
# words the linker leaves them out.
function(_executorch_webgpu_define name whole)
  if(TARGET executorch_webgpu::${name} OR executorch_webgpu_problem)
    return()
  endif()
  set(shared ${ARGN})
  if(TARGET executorch_webgpu::wgpu)
    list(APPEND shared executorch_webgpu::wgpu)
  endif()
  if(shared AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(shared "-Wl,--push-state,--no-as-needed" ${shared} "-Wl,--pop-state")
  endif()
  add_library(executorch_webgpu::${name} INTERFACE IMPORTED ${executorch_webgpu_scope})
  target_link_libraries(
    executorch_webgpu::${name} INTERFACE ${whole} ${shared} executorch::runtime
  )
endfunction()

_executorch_webgpu_define(backend "" executorch_webgpu::library)
if(TARGET executorch_webgpu::archive)
  _executorch_webgpu_define(
    backend_static "$<LINK_LIBRARY:WHOLE_ARCHIVE,executorch_webgpu::archive>"
  )
endif()
