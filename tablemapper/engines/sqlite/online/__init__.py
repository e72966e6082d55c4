"""Changes of a store in batches, while other programs write.

- `dropping`: indexes, aggregates and classes dropped or disabled, and their tables cleared.
- `switch`: the catalogue after a migration switched.
- `layout`: the tables of a file while they change.
- `takeover`: a file takes over the classes of this program.
- `repair`: index rows and groups, corrected from the entities.
- `status`: what the store maintains, and the progress of builds.
- `copying`: entities in a new shape, with a queue of what changes meanwhile.
- `migration`: a migration's steps, its switch, its undoing.
"""
