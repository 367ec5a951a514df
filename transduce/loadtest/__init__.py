"""The load tester: sends requests on a schedule or from clients in a closed loop, and records their outcomes.

`plan.RunPlan` holds what is sent, where and when; `runner.run(plan)` sends it and returns a `result.RunResult`;
`sweep.sweep(...)` finds the highest rate that meets an objective. The load tester speaks HTTP. It imports neither the
server nor training nor export.
"""
