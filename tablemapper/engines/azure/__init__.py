"""The engine for Azure Table storage: entities in the tables of one account.

- `tables`: the service and its tables: requests and how they are sent, and how entities look in them.
- `reading`: queries: what is sent for a plan, and what becomes of the answers.
- `cross_partition`: what a write does in other partitions than its own.
- `catalogue`: what the store is: its catalogue, and the classes as that has them.
- `outcomes`: what a refusal means that no reading explains, and where nobody knows what was written.
- `partition_view`: what is known of a partition when a write is decided: assumed, or read.
- `writes`: one write: what is sent, what a refusal means, what is done in doubt.
- `duplicate_notes`: values that are held twice in what is to be unique.
- `late_writes`: writes of programs that stood still, and what mends them.
- `group_writer`: rows that others than writes change: copies, repairs, builds that begin anew, drops.
- `batch_writes`: many entities: transactions side by side, and what follows from them together.
- `recovery`: what writers left that ended before they were done: finished, or undone.
- `housekeeping`: what a process does behind its writes: intents deleted, names taken away.
- `freeze_barrier`: an account that is only read while it moves.
- `builds`: indexes and aggregates built over entities, beside writers.
- `check`: what the tables hold, for the comparison with the entities.
- `repair`: what a check found, made right.
- `engine`: `AzureEngine`: the protocol, by the modules above.
- `migrations`: scripts that change what an account is.
"""
