"""Changes of a store in batches, while other programs write.

- `transition_runner`: a transition of the catalogue is carried out.
- `dropped_tables`: the tables of what was dropped, cleared.
- `apply_schema`: a file takes over the classes of this program.
- `repair`: index rows and groups, corrected from the entities.
- `status`: what the store maintains, and the progress of builds.
- `backfill`: entities in a new shape, with a queue of what changes meanwhile.
- `migration`: a migration's steps, its switch, its undoing.
"""
