# cmake -DNAME=... -DIMAGE=file -DSOURCE=file -DHEADER=... -DNAMESPACE=... -P EmbedImage.cmake: writes SOURCE, a
# C++ source whose function NAME_image(), declared by HEADER in NAMESPACE, returns the bytes of IMAGE.
file(READ ${IMAGE} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
if(bytes STREQUAL "")
  set(array "")
  set(result "{}")
else()
  set(array "namespace {
alignas(64) constexpr unsigned char ${NAME}_bytes[] = {
${bytes}};
}  // namespace

")
  set(result "${NAME}_bytes")
endif()
file(WRITE ${SOURCE} "// Made by cmake/EmbedImage.cmake.
#include \"${HEADER}\"

namespace ${NAMESPACE} {

${array}std::span<const unsigned char> ${NAME}_image() noexcept { return ${result}; }

}  // namespace ${NAMESPACE}
")
