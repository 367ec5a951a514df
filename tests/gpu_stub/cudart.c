/* Stands in for CUDA's runtime library (libcudart.so.13), version 13, as an NVIDIA H200.
 *
 * A kernel, a matrix product or a replayed graph does nothing and takes no time. It is written to the trace. GPU memory
 * is host memory, and copies and memsets outside a capture are executed at once. So ids, positions and lengths that the
 * host reads back are right, and all that a kernel would compute is garbage.
 *
 * Names and arguments are those of the CUDA Runtime API's manual. */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace.h"

/* --- the trace --- */

static FILE *trace;

struct capture {
  struct capture *next;
  enum cudaStreamCaptureMode mode;
  int is_invalid;
  long num_nodes;
};
static _Thread_local struct capture *own; /* of this thread; NULL if it captures nothing */

static FILE *trace_file(void) {
  if (!trace) {
    const char *path = getenv("GPU_STUB_TRACE");
    trace = path ? fopen(path, "a") : stderr;
    setvbuf(trace, NULL, _IOLBF, 0);
  }
  return trace;
}

void trace_event(const char *kind, const char *detail, long amount, const void *stream) {
  if (own) own->num_nodes++;
  fprintf(trace_file(), "%s\t%s\t%s\t%ld\t%ld\n", own ? "captured" : "done", kind, detail, amount, (long)stream);
}

/* Begins a section of the trace. Called by tests. */
void trace_section(const char *name) { fprintf(trace_file(), "section\t%s\n", name); }

/* --- captures, by the rules of the CUDA Runtime API's manual (cudaThreadExchangeStreamCaptureMode) and of the CUDA
 * Programming Guide (Prohibited and Unhandled Operations) --- */

static struct capture *captures; /* those in progress, of all threads */
static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

int prohibited(const char *function, int waits_for_device) {
  int num_prohibiting = 0;
  pthread_mutex_lock(&captures_lock);
  for (struct capture *each = captures; each; each = each->next) {
    int prohibits = waits_for_device;
    if (each == own && each->mode != cudaStreamCaptureModeRelaxed && thread_mode != cudaStreamCaptureModeRelaxed)
      prohibits = 1;
    if (each != own && each->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal)
      prohibits = 1;
    if (!prohibits) continue;
    each->is_invalid = 1;
    num_prohibiting++;
  }
  pthread_mutex_unlock(&captures_lock);
  if (num_prohibiting) trace_event("prohibited", function, num_prohibiting, NULL);
  return num_prohibiting ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  enum cudaStreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  own = calloc(1, sizeof *own);
  own->mode = mode;
  pthread_mutex_lock(&captures_lock);
  own->next = captures;
  captures = own;
  pthread_mutex_unlock(&captures_lock);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  usleep(10000); /* so that calls of other threads fall into the capture */
  pthread_mutex_lock(&captures_lock);
  struct capture **place = &captures;
  while (*place != own) place = &(*place)->next;
  *place = own->next;
  pthread_mutex_unlock(&captures_lock);
  const struct capture ended = *own;
  free(own);
  own = NULL;
  *graph = NULL;
  if (ended.is_invalid) return cudaErrorStreamCaptureInvalidated;
  trace_event("graph", "captured", ended.num_nodes, stream);
  *graph = (cudaGraph_t)ended.num_nodes;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = own ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

/* --- kernels, whose names are registered when the provider's library is loaded --- */

struct kernel {
  const void *function;
  const char *name;
};
static struct kernel *kernels;
static size_t num_kernels, kernel_capacity;
static int is_sorted;

void **__cudaRegisterFatBinary(void *binary) {
  void **handle = malloc(sizeof(void *));
  *handle = binary;
  return handle;
}
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int is_extern, size_t size,
                       int is_constant, int is_global) {}
void __cudaRegisterFunction(void **handle, const char *function, char *device, const char *name, int limit, uint3 *a,
                            uint3 *b, dim3 *c, dim3 *d, int *e) {
  if (num_kernels == kernel_capacity) {
    kernel_capacity = kernel_capacity ? 2 * kernel_capacity : 8192;
    kernels = realloc(kernels, kernel_capacity * sizeof(struct kernel));
  }
  kernels[num_kernels].function = function;
  kernels[num_kernels++].name = name;
  is_sorted = 0;
}

static int compare(const void *a, const void *b) {
  const struct kernel *x = a, *y = b;
  return (x->function > y->function) - (x->function < y->function);
}

static cudaError_t launch(const void *function, dim3 grid, cudaStream_t stream) {
  if (!is_sorted) qsort(kernels, num_kernels, sizeof(struct kernel), compare);
  is_sorted = 1;
  const struct kernel key = {function, NULL};
  const struct kernel *found = bsearch(&key, kernels, num_kernels, sizeof(struct kernel), compare);
  trace_event("kernel", found ? found->name : "?", (long)grid.x * grid.y * grid.z, stream);
  return cudaSuccess;
}

static _Thread_local struct {
  dim3 grid, block;
  size_t shared_bytes;
  void *stream;
} calls[8];
static _Thread_local int num_calls;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream) {
  calls[num_calls].grid = grid;
  calls[num_calls].block = block;
  calls[num_calls].shared_bytes = shared_bytes;
  calls[num_calls++].stream = stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
  num_calls--;
  *grid = calls[num_calls].grid;
  *block = calls[num_calls].block;
  *shared_bytes = calls[num_calls].shared_bytes;
  *(void **)stream = calls[num_calls].stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return launch(kernel, grid, stream);
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return launch(function, grid, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  return launch(function, grid, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
  return launch(function, config->gridDim, config->stream);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  trace_event("host_function", "", 0, stream);
  if (!own) function(data);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *function) {
  memset(found, 0, sizeof *found);
  found->maxThreadsPerBlock = 1024;
  found->numRegs = 64;
  found->binaryVersion = found->ptxVersion = 90;
  found->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *number, const void *function, int block,
                                                                   size_t shared_bytes, unsigned flags) {
  *number = 2;
  return cudaSuccess;
}

/* --- memory --- */

static cudaError_t allocate(void **address, size_t size, const char *place) {
  if (strcmp(place, "pool") && prohibited("allocate", 0)) return cudaErrorStreamCaptureUnsupported;
  if (posix_memalign(address, 256, size ? size : 256)) return cudaErrorMemoryAllocation;
  memset(*address, 0x11, size < (1 << 20) ? size : (1 << 20));
  trace_event("allocate", place, (long)size, NULL);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void **address, size_t size) { return allocate(address, size, "device"); }
cudaError_t cudaMallocHost(void **address, size_t size) { return allocate(address, size, "host"); }
cudaError_t cudaHostAlloc(void **address, size_t size, unsigned flags) { return allocate(address, size, "host"); }
cudaError_t cudaMallocFromPoolAsync(void **address, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
  return allocate(address, size, "pool");
}
static cudaError_t release(void *address, const char *place) {
  if (strcmp(place, "pool") && prohibited("free", 0)) return cudaErrorStreamCaptureUnsupported;
  trace_event("free", place, 0, NULL);
  free(address);
  return cudaSuccess;
}
cudaError_t cudaFree(void *address) { return release(address, "device"); }
cudaError_t cudaFreeHost(void *address) { return release(address, "host"); }
cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) { return release(address, "pool"); }

static const char *direction(enum cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice ? "in" : kind == cudaMemcpyDeviceToHost ? "out" : "on_device";
}
cudaError_t cudaMemcpy(void *target, const void *source, size_t size, enum cudaMemcpyKind kind) {
  if (prohibited("cudaMemcpy", 0)) return cudaErrorStreamCaptureUnsupported;
  trace_event("copy_and_wait", direction(kind), (long)size, NULL);
  memcpy(target, source, size);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *target, const void *source, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  trace_event("copy", direction(kind), (long)size, stream);
  if (!own) memcpy(target, source, size);
  return cudaSuccess;
}
/* XQA reads how many bytes of shared memory its kernels need. */
cudaError_t cudaMemcpyFromSymbol(void *target, const void *symbol, size_t size, size_t offset,
                                 enum cudaMemcpyKind kind) {
  if (prohibited("cudaMemcpyFromSymbol", 0)) return cudaErrorStreamCaptureUnsupported;
  trace_event("copy_and_wait", "symbol", (long)size, NULL);
  memset(target, 0, size);
  if (size == sizeof(unsigned)) *(unsigned *)target = 90000;
  return cudaSuccess;
}
cudaError_t cudaMemset(void *target, int value, size_t size) {
  if (prohibited("cudaMemset", 0)) return cudaErrorStreamCaptureUnsupported;
  trace_event("memset", "and_wait", (long)size, NULL);
  memset(target, value, size);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *target, int value, size_t size, cudaStream_t stream) {
  trace_event("memset", "", (long)size, stream);
  if (!own) memset(target, value, size);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  *available = 130ull << 30;
  *total = 141ull << 30;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *address) {
  memset(found, 0, sizeof *found);
  found->type = cudaMemoryTypeDevice;
  found->devicePointer = found->hostPointer = (void *)address;
  return cudaSuccess;
}

/* --- streams, events and graphs; a graph's handle is its number of nodes --- */

static _Atomic long last_handle = 0x1000;
static void *new_handle(void) { return (void *)(last_handle += 16); }

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  *stream = new_handle();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) { return cudaStreamCreate(stream); }
static cudaError_t wait_for(const char *what, const void *stream) {
  trace_event("wait", what, 0, stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return wait_for("stream", stream); }
cudaError_t cudaDeviceSynchronize(void) {
  if (prohibited("cudaDeviceSynchronize", 1)) return cudaErrorStreamCaptureUnsupported;
  return wait_for("device", NULL);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return wait_for("event", NULL); }
cudaError_t cudaEventCreate(cudaEvent_t *event) {
  *event = new_handle();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return cudaEventCreate(event); }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = 1;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
  *executable = (cudaGraphExec_t)graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  trace_event("replay", "", (long)executable, stream);
  return cudaSuccess;
}

/* --- the device --- */

cudaError_t cudaGetDeviceCount(int *number) {
  *number = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
  memset(found, 0, sizeof *found);
  strcpy(found->name, "NVIDIA H200");
  found->totalGlobalMem = 141ull << 30;
  found->sharedMemPerBlock = 49152;
  found->sharedMemPerBlockOptin = 232448;
  found->sharedMemPerMultiprocessor = 233472;
  found->regsPerBlock = found->regsPerMultiprocessor = 65536;
  found->warpSize = 32;
  found->maxThreadsPerBlock = found->maxThreadsDim[0] = found->maxThreadsDim[1] = 1024;
  found->maxThreadsDim[2] = 64;
  found->maxGridSize[0] = 2147483647;
  found->maxGridSize[1] = found->maxGridSize[2] = 65535;
  found->major = 9;
  found->multiProcessorCount = 132;
  found->l2CacheSize = 60 << 20;
  found->maxThreadsPerMultiProcessor = 2048;
  found->maxBlocksPerMultiProcessor = 32;
  found->cooperativeLaunch = found->memoryPoolsSupported = found->unifiedAddressing = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  struct cudaDeviceProp device_properties;
  cudaGetDeviceProperties(&device_properties, device);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = device_properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device_properties.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = device_properties.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)device_properties.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)device_properties.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = (int)device_properties.sharedMemPerMultiprocessor;
      break;
    case cudaDevAttrMaxThreadsPerBlock: *value = device_properties.maxThreadsPerBlock; break;
    case cudaDevAttrMaxGridDimX: *value = device_properties.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = device_properties.maxGridSize[1]; break;
    case cudaDevAttrWarpSize: *value = device_properties.warpSize; break;
    default: *value = 1;
  }
  return cudaSuccess;
}
const char *cudaGetErrorName(cudaError_t error) { return "an error of the stand-in"; }
const char *cudaGetErrorString(cudaError_t error) { return "an error of the stand-in"; }
