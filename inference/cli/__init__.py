"""`python -m inference`: compare, bench, quality, doctor, deploy; progress on a terminal, and where output goes.

In: arguments. Out: stdout, files, an exit code. May import: everything but `lane`, `models`, `decode`, `cpu`, `cuda`: what it wants to
know of those it asks a process.
"""
