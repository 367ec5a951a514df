"""The load tester: sends requests on a fixed schedule, whatever the responses, and records the outcome of each.

`plan.RunPlan` holds what is sent, where and when; `runner.run(plan)` sends it and returns a `result.RunResult`;
`sweep.sweep(...)` finds the highest rate that meets an objective. The load tester speaks HTTP and imports no other
package of the project.
"""
