# cmake -DHEADERS=FOLDER -P strip_mutants.cmake: takes the mutants (polypath/device/detail/mutants.hpp) out of
# the headers in a folder: the lines that include mutants.hpp, and those with
# one of its macros.
file(GLOB_RECURSE headers ${HEADERS}/*.cuh ${HEADERS}/*.hpp)
foreach(header IN LISTS headers)
  file(READ ${header} text)
  if(NOT text MATCHES "mutant")
    continue()
  endif()
  string(REGEX REPLACE "#include \"[^\n\"]*mutants.hpp\"\n" "" text "${text}")
  # On a second line too, where the first one ends with a comma.
  string(REGEX REPLACE "\n *POLYPATH_MUTANT[A-Z_]*\\([^\n]*(,\n[^\n]*)?\\)" "" text "${text}")
  if(text MATCHES "mutant|MUTANT")
    message(FATAL_ERROR "${header}: a mutant is not on a line of its own")
  endif()
  file(WRITE ${header} "${text}")
endforeach()
