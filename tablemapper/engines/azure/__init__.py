"""The engine for Azure Table storage: entities in the tables of one account.

- `tables`: the service and its tables: requests and how they are sent, and how entities look in them.
- `reading`: queries: what is sent for a plan, and what becomes of the answers.
- `cross_partition`: what a write does in other partitions than its own.
- `catalogue`: what the store is: its catalogue, and the classes as that has them.
- `writing`: one write, or many: what is sent, and what came of it.
- `partition_reader`: the rows of a partition with their classes, and the keys of all.
- `group_writer`: rows that others than writes change: copies, repairs, builds that begin anew, drops.
- `recovery`: what writers left that ended before they were done: finished, or undone.
- `housekeeping`: what a process does behind its writes: intents deleted, names taken away.
- `freeze_barrier`: an account that is only read while it moves.
- `dropping`: classes that leave the store with their tables.
- `clearing`: classes with very many entities that get empty tables.
- `builds`: indexes and aggregates built over entities, beside writers.
- `check`: what the tables hold, for the comparison with the entities.
- `repair`: what a check found, made right.
- `engine`: `AzureEngine`: the protocol, by the modules above.
- `migrations`: scripts that change what an account is.
"""
