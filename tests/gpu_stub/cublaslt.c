/* Stands in for cuBLASLt (libcublasLt.so.13), as cublas.c does for cuBLAS. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

struct layout {
  uint64_t num_rows, num_columns;
};

int cublasLtCreate(void **handle) { return (*handle = malloc(64)) == NULL; }
int cublasLtMatmulDescCreate(void **description) { return (*description = calloc(1, 256)) == NULL; }
int cublasLtMatmulPreferenceCreate(void **preference) { return (*preference = calloc(1, 256)) == NULL; }
int cublasLtMatrixLayoutCreate(void **found, int type, uint64_t num_rows, uint64_t num_columns, int64_t stride) {
  struct layout *layout = calloc(1, 256);
  layout->num_rows = num_rows;
  layout->num_columns = num_columns;
  *found = layout;
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, void *a, void *b, void *c, void *d,
                                   void *preference, int num_wanted, void *results, int *num_found) {
  memset(results, 0, 128);
  *num_found = 1;
  return 0;
}
int cublasLtMatmul(void *handle, void *description, const void *alpha, const void *a, const struct layout *a_layout,
                   const void *b, const struct layout *b_layout, const void *beta, const void *c,
                   const void *c_layout, void *d, const struct layout *d_layout, const void *algorithm,
                   void *workspace, size_t workspace_bytes, void *stream) {
  char detail[96];
  snprintf(detail, sizeof detail, "cublasLtMatmul %ldx%ld", (long)d_layout->num_rows, (long)d_layout->num_columns);
  trace_event("product", detail, 1, stream);
  return 0;
}
