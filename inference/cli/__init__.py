"""`python -m inference`: compare, bench, quality, decide, doctor, deploy; progress on a terminal, and where output goes.

In: arguments. Out: stdout, files, an exit code. May import: the vocabulary, engine, record, quality, series, bench, load,
space, decide, report; what it wants to know of the others it asks a process.
"""
