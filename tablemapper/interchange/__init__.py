"""Entities as other programs and people write them: whole, in part, and what they ask for.

- `json`: entities as JSON.
- `pydantic`: what pydantic, and so FastAPI, asks of a class.
- `patches`: partial bodies, as assignments.
- `parsing`: conditions, orders and keys as a person types them.
"""
