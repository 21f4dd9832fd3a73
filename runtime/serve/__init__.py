"""``pilotfish serve``: bundles behind the OpenAI protocol.

HTTP is starlette's and uvicorn's, which are imported in this folder alone.
Reading order: server -> app -> chat, completions -> generations -> scheduler.
"""
