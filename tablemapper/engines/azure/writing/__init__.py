"""Writes in the tables of an account: what is sent, and what came of it.

- `outcomes`: what a refusal means that no reading explains, and where nobody knows what was written.
- `partition_view`: what is known of a partition when a write is decided: assumed, or read.
- `writes`: one write: what is sent, what a refusal means, what is done in doubt.
- `duplicate_notes`: values that are held twice in what is to be unique.
- `late_writes`: writes of programs that stood still, and what mends them.
- `batch_writes`: many entities: transactions side by side, and what follows from them together.
"""
