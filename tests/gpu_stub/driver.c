/* Stands in for the NVIDIA driver's library (libcuda.so.1), which runs the copy kernel of app/runtime/cuda_copies.py. */
#include <string.h>

#include "trace.h"

static char name_of_function[64];

int cuTensorMapEncodeTiled(void) { return 0; }
int cuModuleLoadData(void **module, const void *image) {
  *module = (void *)1;
  return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  strncpy(name_of_function, name, sizeof name_of_function - 1);
  *function = name_of_function;
  return 0;
}
int cuLaunchKernel(const char *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
                   void **extra) {
  trace_event("kernel", function, (long)grid_x * grid_y * grid_z, stream);
  return 0;
}
