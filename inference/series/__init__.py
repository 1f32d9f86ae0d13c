"""Files of prompts: read, run through the engine one after the other, and shown as tables.

In: a txt, csv or jsonl file. Out: records with their rows. May import: the vocabulary, `engine`, `record`. No torch.
"""
