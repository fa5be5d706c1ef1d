"""The probe programs: what a scan host runs in child processes.

They know the record formats of `runlane.tools` and nothing else of the product. `python -m
runlane.probes.<name>` runs one by itself; a process that forks calls `runlane.probes.programs.serve`.
"""
