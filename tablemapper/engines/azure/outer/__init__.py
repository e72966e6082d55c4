"""What a write does in other partitions than that of its entities: an intent in its transaction says it.

- `marks`: what says of an entity whether it is in what was built over entities.
- `outbox`: intents: packed, fenced, and where they are.
- `reservations`: unique values over partitions: taken, passed on, given up.
- `finishing`: an intent carried out, or taken back; deltas of groups in other partitions.
- `elsewhere`: from what a write does to entities to its intent.
"""
