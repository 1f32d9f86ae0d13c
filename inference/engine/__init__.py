"""Starts, watches and ends lane processes; the queue before them; a run as an iterator of events, and a whole comparison in one call.

In: settings, requests. Out: events, the record of a comparison. May import: the vocabulary, `record`. No torch.
"""
