"""The named endpoints for other programs: what they are, a call made whole or refused, and who waits for an answer.

In: calls over HTTP, by gradio_client or as MCP tools. Out: plain values; every fault as a sentence. Imports the engine, record and quality, and `ui/api.py`.
"""
