"""The tab "History": the tab's comparisons opened again, held against each other, asked again, exported.

In: kept records. Out: HTML and texts. May import comparison.
"""
