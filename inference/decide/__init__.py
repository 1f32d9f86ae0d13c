"""Which lane to serve: what it costs, whether it keeps the limits, and what would turn that.

In: records, what the person wants, prices. Out: a decision of which every number is traced. May import: the vocabulary, record, series. No torch.
"""
