"""Starts, watches and ends lane processes; the queue before them; the change of their model; a run as an iterator of events; a comparison in one call.

In: settings, requests. Out: events, the record of a comparison. May import: the vocabulary, `record`. No torch.
"""
