"""Writes to other partitions than that of the entities: an intent in the transaction says what they are.

- `marks`: what says of an entity whether it is in what was built over entities.
- `named_partitions`: the partitions in which a process has intents, and what is left of these.
- `outbox`: intents: packed, fenced, and where they are.
- `reservations`: unique values over partitions: taken, passed on, given up.
- `intent_builder`: from what a write does to entities, and to groups beside them, to its intent.
- `value_counts`: how often each value of a group is there whose ends it has: in its row, and in pages.
- `remote_groups`: rows of groups in other partitions, and those that indexes have of them: deltas added, each once.
- `delta_batching`: what writers of one process add to one group at one time.
- `intent_execution`: an intent carried out, or taken back.
"""
