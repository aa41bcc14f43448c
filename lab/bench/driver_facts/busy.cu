// Keeps a multiprocessor busy for a number of rounds: work, not time, so that a block that is taken
// off the GPU for a while ends later.
namespace polypath::facts {

extern "C" __global__ void busy(float* result, unsigned int rounds) {
  float value = threadIdx.x;
  for (unsigned int i = 0; i < rounds; ++i) value = __fmaf_rn(value, 0.999f, 1.0f);
  if (value < 0) *result = value;  // never, but the compiler does not know
}

}  // namespace polypath::facts
