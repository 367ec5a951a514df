/* Every call that a GPU would execute, or for which the host would wait, is a line of the trace (trace.py reads it). */
#pragma once

/* kind: "kernel", "copy", "wait"... detail: the kernel's name or the like. amount: blocks, bytes or graph nodes. */
void trace_event(const char *kind, const char *detail, long amount, const void *stream);

/* Traces a call that captures in progress forbid to this thread, and makes these captures invalid. Returns 0 if none
 * forbids it, else error 900 (cudaErrorStreamCaptureUnsupported), with which the call must fail.
 *
 * function: a potentially unsafe call. waits_for_device: whether it waits for the whole device. */
int prohibited(const char *function, int waits_for_device);

/* Writes the first call of a function that no C file defines. The function returns 0. */
void trace_undefined(const char *name);
