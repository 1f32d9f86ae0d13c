"""A lane that is a server elsewhere: asked over the network by a process of its own, which speaks the events of every lane.

In: an endpoint of the settings, requests. Out: events; texts and counts as the server gives them, times as they are here. No torch. May import: the vocabulary, sources, lane.
"""
