// The code of toml++ that its header only declares where TOML_HEADER_ONLY is 0
// (Dependencies.cmake).
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
