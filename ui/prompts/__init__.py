"""The tab "Prompts file": every prompt of a file on every lane.

In: an uploaded file. Out: progress, whole answers side by side, medians, an export. May import comparison.
"""
