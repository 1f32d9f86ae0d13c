"""The first tab: one prompt on every lane.

In: what a visitor asks. Out: the scoreboard, a card a lane, the race and its figures, and the page's model. May import nothing of the other rooms.
"""
