"""Changes of a store in batches, beside those who write.

- `dropping`: what is no longer declared, removed.
- `switch`: what a switch makes of a catalogue.
- `takeover`: a file as it was, taken over by the models of this program.
- `repair`: what is maintained, made right again.
- `status`: what stands where.
- `copying`: entities in a new shape, with a queue of what changes meanwhile.
- `migration`: a migration's steps, its switch, its undoing.
"""
