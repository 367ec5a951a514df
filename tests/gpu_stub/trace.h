/* Every call that a GPU would execute, or for which the host would wait, is a line of the trace (trace.py reads it). */
#pragma once

/* kind: "kernel", "copy", "wait"... detail: the kernel's name or the like. amount: blocks, bytes or graph nodes. */
void trace_event(const char* kind, const char* detail, long amount, const void* stream);

/* Checks a call against the captures in progress. If a capture forbids the call, traces the call, makes each capture
 * that forbids it invalid, and returns error 900 (cudaErrorStreamCaptureUnsupported), with which the call must fail.
 * Otherwise returns 0.
 *
 * function: the call, potentially unsafe. waits_for_device: whether it waits for the whole device. */
int prohibited(const char* function, int waits_for_device);
