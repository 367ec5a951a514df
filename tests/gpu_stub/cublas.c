/* Stands in for cuBLAS (libcublas.so.13). A product is traced with its sizes and not computed.
 *
 * cuBLAS's headers are not needed: these functions declare only the arguments that they read, which the calling
 * convention of x86-64 allows. Another library's handle is passed through, so it may be anything but null. */
#include <stdio.h>
#include <stdlib.h>

#include "trace.h"

static void *stream;

static int trace_product(const char *function, int m, int n, int k) {
  char detail[96];
  snprintf(detail, sizeof detail, "%s %dx%dx%d", function, m, n, k);
  trace_event("product", detail, 1, stream);
  return 0;
}

int cublasCreate_v2(void **handle) { return (*handle = malloc(64)) == NULL; }
/* As cuBLAS's manual says, it waits for the device. */
int cublasDestroy_v2(void *handle) {
  free(handle);
  return prohibited("cublasDestroy", 1) ? 14 /* CUBLAS_STATUS_INTERNAL_ERROR */ : 0;
}
int cublasLtCreate(void **handle) { return cublasCreate_v2(handle); }
int cublasSetStream_v2(void *handle, void *new_stream) {
  stream = new_stream;
  return 0;
}
int cublasGetMathMode(void *handle, int *mode) { return *mode = 0; }
#define PRODUCT(function)                                                         \
  int function(void *handle, int transposes_a, int transposes_b, int m, int n, int k) { \
    return trace_product(#function, m, n, k);                                     \
  }
PRODUCT(cublasGemmEx)
PRODUCT(cublasGemmBatchedEx)
PRODUCT(cublasGemmStridedBatchedEx)
PRODUCT(cublasSgemm_v2)
PRODUCT(cublasSgemmBatched)
PRODUCT(cublasSgemmStridedBatched)
const char *cublasGetStatusString(int status) { return "a status of the stand-in"; }
const char *cublasGetStatusName(int status) { return "a status of the stand-in"; }
