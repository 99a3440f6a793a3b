# Speed-ups of the build, used when present and never needed: ccache, and mold or lld.
include(CheckLinkerFlag)

find_program(GRAPNEL_CCACHE ccache)
mark_as_advanced(GRAPNEL_CCACHE)
if(GRAPNEL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Sloppiness lets sources behind a precompiled header be cached. NOHASHDIR lets build folders share
  # objects: sources are named by absolute path, so the compiler's folder does not matter. DEPEND looks
  # at whole files: a precompiled header made before a comment changed is no longer the same to g++.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 ${GRAPNEL_CCACHE})
endif()

foreach(linker mold lld)
  check_linker_flag(CXX -fuse-ld=${linker} GRAPNEL_LINKS_WITH_${linker})
  if(GRAPNEL_LINKS_WITH_${linker})
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()
