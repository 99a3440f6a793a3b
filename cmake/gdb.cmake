# Values in gdb. Programs that contain the static library contain the printers, too. For a shared library gdb loads
# FOLDER/gdb/auto-load/PATH/OF/LIBRARY-gdb.py by itself. Everybody else finds one file.
set(printers ${PROJECT_SOURCE_DIR}/tools/gdb_printers.py)
install(FILES ${printers} DESTINATION ${CMAKE_INSTALL_DATADIR}/grapnel)
if(BUILD_SHARED_LIBS)
  set(beside ${PROJECT_BINARY_DIR}/libgrapnel.so.${PROJECT_VERSION}-gdb.py)
  install(CODE "
    file(COPY_FILE \"${printers}\" \"${beside}\")
    file(INSTALL \"${beside}\" DESTINATION
         \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/gdb/auto-load\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}\")")
else()
  target_sources(grapnel PRIVATE grapnel/gdb_printers.cpp)
  target_link_options(grapnel INTERFACE -Wl,-u,grapnel_gdb_printers)
  # The compiler does not see that the file includes another one.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${printers})
  file(SHA256 ${printers} hash)
  set_source_files_properties(grapnel/gdb_printers.cpp TARGET_DIRECTORY grapnel PROPERTIES COMPILE_DEFINITIONS GRAPNEL_PRINTERS=${hash})
endif()
