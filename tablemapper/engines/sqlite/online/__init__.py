"""Changes of a store in batches, while other programs write.

- `dropping`: what is no longer declared, removed.
- `switch`: what a switch makes of a catalogue.
- `takeover`: how a file takes over the models of this program.
- `repair`: index rows and groups, corrected from the entities.
- `status`: what the store maintains, and the progress of builds.
- `copying`: entities in a new shape, with a queue of what changes meanwhile.
- `migration`: a migration's steps, its switch, its undoing.
"""
