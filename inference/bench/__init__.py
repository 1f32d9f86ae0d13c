"""Ours beside plain `generate` and other programs: the same weights, prompt and machine, A B A B.

In: settings, a prompt. Out: a table and one JSON object. May import: the vocabulary, `engine`, `record`, `quality`; its baselines
(`plain`, `dequantized`, `llama_cpp`, `worker`) are lane processes and import `lane` and `models`.
"""
