# Speed-ups of the build, used when present and never needed: ccache, and mold or lld.
include(CheckLinkerFlag)

# Messages, reports of sanitizers and gdb say tests/nn/call_test.cpp:12, wherever the clone lies.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)

find_program(GRAPNEL_CCACHE ccache)
mark_as_advanced(GRAPNEL_CCACHE)
if(GRAPNEL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Sloppiness lets sources behind a precompiled header be cached. NOHASHDIR and BASEDIR let build folders
  # and clones share objects, which name sources as seen from the root. DEPEND looks at whole files: a
  # precompiled header made before a comment changed is no longer the same to g++.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_DEPEND=1 ${GRAPNEL_CCACHE})
endif()

foreach(linker mold lld)
  check_linker_flag(CXX -fuse-ld=${linker} GRAPNEL_LINKS_WITH_${linker})
  if(GRAPNEL_LINKS_WITH_${linker})
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()
