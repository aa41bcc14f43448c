// The twins of the kernels that prove paths (simt/twins.hpp): their source, compiled for the host.
#include "messaging/kernels/line_proof.cu"
