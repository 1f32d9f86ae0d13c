"""The machine and its processes: memory and processors as its groups limit them, the card by its driver, the hardware that Spaces have with its
prices and their date; how a process of ours begins, what Ctrl+C does before its work does, and what is told where this Python can run nothing.

In: what the system says. Out: numbers, environments, processes. May import: the vocabulary, of which it is a part: all may import it. No torch.
"""
