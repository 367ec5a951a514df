/* Stands in for CUDA's compiler library (libnvrtc.so.13). Every program compiles to one byte. */
#include <stddef.h>

int nvrtcCreateProgram(void **program, const char *source, const char *name, int num_headers, const char **headers,
                       const char **names) {
  *program = (void *)1;
  return 0;
}
int nvrtcCompileProgram(void *program, int num_options, const char **options) { return 0; }
int nvrtcGetCUBINSize(void *program, size_t *size) {
  *size = 1;
  return 0;
}
int nvrtcGetCUBIN(void *program, char *image) { return *image = 0; }
int nvrtcDestroyProgram(void **program) { return 0; }
