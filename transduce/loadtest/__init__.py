"""The load tester: requests on a schedule that no answer can delay, and what became of each of them.

`plan.py` says what is sent where and when, `runner.run(plan)` sends it, `result.RunResult` is what came of it,
`sweep.sweep(...)` finds the highest rate that keeps a promise. It speaks HTTP and imports no other room.
"""
