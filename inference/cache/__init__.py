"""What we keep on disk: one folder, a lock an entry, entries that are whole or not there, and how much all of it may take.

In: settings, an entry's kind and name. Out: its path, made by whoever holds the lock. May import: the vocabulary. No torch.
"""
