# Three ways out: a normal prefix (lib, include, share, CMake package, pkg-config file), and the
# Python wheel (component "wheel": everything inside the package's own folder).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(POLYPATH_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/polypath)
get_property(POLYPATH_DRIVER_NAMES GLOBAL PROPERTY POLYPATH_DRIVER_NAMES)
set(POLYPATH_NODES_DIR ${CMAKE_INSTALL_DATAROOTDIR}/polypath/nodes)

install(TARGETS polypath polypath_lab EXPORT polypath LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS polypath_sim polypath_references LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET polypath_preload)
  install(TARGETS polypath_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS polypath_preload
    LIBRARY DESTINATION polypath/lib COMPONENT wheel EXCLUDE_FROM_ALL)
endif()
install(TARGETS ${POLYPATH_DRIVER_NAMES}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/simulated-driver)
foreach(folder ${POLYPATH_PUBLIC_INCLUDES})
  install(DIRECTORY ${folder}/polypath DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    PATTERN mutants.hpp EXCLUDE PATTERN mutant_switch.hpp EXCLUDE)
endforeach()
# Defects that tests switch on are no part of what programs get.
install(CODE "set(HEADERS \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/polypath)")
install(SCRIPT cmake/strip_mutants.cmake)
install(DIRECTORY nodes/ DESTINATION ${POLYPATH_NODES_DIR} FILES_MATCHING PATTERN *.toml)

install(EXPORT polypath NAMESPACE polypath:: FILE polypathConfig.cmake
  DESTINATION ${POLYPATH_CMAKE_DIR})
write_basic_package_version_file(polypathConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# The prefix as seen from the pkg-config file, so that an installed tree can be moved.
string(REGEX REPLACE "[^/]+" ".." POLYPATH_PREFIX_FROM_PC ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(cmake/polypath.pc.in polypath.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/polypathConfigVersion.cmake
  DESTINATION ${POLYPATH_CMAKE_DIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/polypath.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Not there for every processor (intercept/CMakeLists.txt).
if(TARGET polypath_preload)
  set(POLYPATH_SHIM polypath_preload)
  install(TARGETS polypath_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET polypath_nccl)
  list(APPEND POLYPATH_SHIM polypath_nccl)
  install(TARGETS polypath_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# What the Python package runs: all that `make demo` builds, and the wheel holds.
add_custom_target(package_contents
  DEPENDS polypath polypath_lab polypath_sim simulated_driver polypath_references ${POLYPATH_SHIM})
# A wheel has no symbolic links: each library once, under its plain name.
foreach(library polypath polypath_lab polypath_sim ${POLYPATH_SHIM})
  install(FILES $<TARGET_FILE:${library}> RENAME $<TARGET_LINKER_FILE_NAME:${library}>
    DESTINATION polypath/lib COMPONENT wheel EXCLUDE_FROM_ALL)
endforeach()
install(TARGETS ${POLYPATH_DRIVER_NAMES}
  LIBRARY DESTINATION polypath/lib/simulated-driver COMPONENT wheel EXCLUDE_FROM_ALL)
install(TARGETS polypath_references
  LIBRARY DESTINATION polypath/lib COMPONENT wheel EXCLUDE_FROM_ALL)
install(DIRECTORY nodes/ DESTINATION polypath/nodes COMPONENT wheel EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN *.toml)
