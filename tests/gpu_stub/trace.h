/* Every call that a GPU would execute, or for which the host would wait, is a line of the trace (trace.py reads it). */
#pragma once

/* kind: "kernel", "copy", "wait"... detail: the kernel's name or the like. amount: blocks, bytes or graph nodes. */
void trace_event(const char *kind, const char *detail, long amount, const void *stream);

/* Writes the first call of a function that no C file defines. The function returns 0. */
void trace_undefined(const char *name);
