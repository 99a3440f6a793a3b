# cmake --install: headers with their folders, the library, the CMake package and grapnel.pc.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Grapnel)

install(DIRECTORY grapnel/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/grapnel FILES_MATCHING PATTERN "*.h")
install(TARGETS grapnel EXPORT GrapnelTargets)
if(GRAPNEL_LLVM)
  install(TARGETS grapnel_llvm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(GRAPNEL_MPI)
  install(TARGETS grapnel_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(EXPORT GrapnelTargets NAMESPACE Grapnel:: DESTINATION ${package_dir})

configure_package_config_file(cmake/GrapnelConfig.cmake.in GrapnelConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(GrapnelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/GrapnelConfig.cmake ${PROJECT_BINARY_DIR}/GrapnelConfigVersion.cmake
              cmake/GrapnelDependencies.cmake DESTINATION ${package_dir})

# A static library brings its dependencies to the user's link line; a shared one names them itself.
set(pc_depends "-pthread")
if(NOT BUILD_SHARED_LIBS)
  string(PREPEND pc_depends "-Wl,-u,grapnel_gdb_printers -ldnnl -ldw -lz ")
  if(GRAPNEL_LLVM OR GRAPNEL_MPI)
    string(APPEND pc_depends " -Wl,-rpath,\${libdir}")  # where the modules are
  endif()
endif()
configure_file(cmake/grapnel.pc.in grapnel.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/grapnel.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
