"""A comparison as data: how it is built from finished runs, its figures, verdict and tables, and every form it is exported in.

In: lanes' status and runs. Out: the record, Markdown, CSV, JSON, the code to reproduce. May import: the vocabulary. No torch.
"""
