"""The tab "Decide": which lane to serve, by what this browser tab has measured and by what the visitor wants.

In: the tab's records, wishes, prices. Out: the decision as HTML, Markdown and a report. May import comparison and prompts.
"""
