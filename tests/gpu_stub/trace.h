/* Every call that a GPU would execute is written to the trace as one line. tests/gpu_stub/trace.py reads it. */
#pragma once

/* kind: of Kind in trace.py. detail: the kernel's name or the like. amount: threads' blocks, bytes or graph nodes. */
void trace_event(const char *kind, const char *detail, long amount, const void *stream);

/* A function without a definition of its own was called for the first time. It has returned 0. */
void trace_undefined(const char *name);
