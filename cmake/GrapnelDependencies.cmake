# Finds what libgrapnel links. Installed beside GrapnelConfig.cmake, so that a program that uses the
# static library finds exactly what the build found.
#
# oneDNN's own CMake package asks for the OpenCL headers, which nothing here needs; the library and
# its header are looked up directly instead.
include_guard(GLOBAL)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

function(grapnel_find target library header debian_package)
  if(TARGET ${target})
    return()
  endif()
  find_library(GRAPNEL_${library}_LIBRARY ${library})
  find_path(GRAPNEL_${library}_INCLUDE_DIR ${header})
  mark_as_advanced(GRAPNEL_${library}_LIBRARY GRAPNEL_${library}_INCLUDE_DIR)
  if(NOT GRAPNEL_${library}_LIBRARY OR NOT GRAPNEL_${library}_INCLUDE_DIR)
    message(FATAL_ERROR "Grapnel needs lib${library} and <${header}>, which were not found. On Debian: "
                        "apt-get install ${debian_package}. Elsewhere: point CMAKE_PREFIX_PATH at them.")
  endif()
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${GRAPNEL_${library}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${GRAPNEL_${library}_INCLUDE_DIR}")
endfunction()

grapnel_find(Grapnel::dnnl dnnl dnnl.hpp libdnnl-dev)             # matmul, convolution
grapnel_find(Grapnel::dw dw elfutils/libdwfl.h libdw-dev)         # source lines of ops and hooks
grapnel_find(Grapnel::z z zlib.h zlib1g-dev)                       # compressed data sets and arrays
