/* Stands in for cuDNN (libcudnn.so.9). The provider loads it when the first attention runs, and calls no more than this
 * as long as cuDNN's own attention is off (sdpa_kernel in app/runtime/cuda_runner.py). */
#include <stddef.h>
#include <stdlib.h>

int cudnnCreate(void **handle) { return (*handle = malloc(64)) == NULL; }
size_t cudnnGetVersion(void) { return 92800; }
const char *cudnnGetErrorString(int status) { return "a status of the stand-in"; }
void cudnnGetLastErrorString(char *message, size_t size) { message[0] = 0; }
