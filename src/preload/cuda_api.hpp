// cuda.h without those of its renaming macros that would hide an older function which the shim replaces too.
#pragma once

#include <cuda.h>

#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuMemcpyBatchAsync
