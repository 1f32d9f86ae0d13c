"""The report for whoever decides: one HTML file that needs no network and no script; and what of it the page draws too.

In: records, a decision if there is one. Out: the file's text; the charts as plain numbers. May import: the vocabulary, record, decide, series. No torch.
"""
