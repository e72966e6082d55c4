"""The command ``tablemapper``: each of its commands calls one public function, and shows what that returns.

- `output`: what commands print, in characters that the output can hold.
- `app`: the program: its commands, each loaded when it runs, its options, where stores and models are, how it ends.
- `administration_commands`: the commands that look after one store.
- `store_reader`: how commands open a store that they only read.
- `query_commands`: the commands that show what is in a store.
- `data_commands`: the commands that write entities.
- `analysis_commands`: the commands that draw a model, and say how a store is filled and what is unwise.
- `inspect`: the command that serves the inspector.
- `migration_commands`: the commands about migration scripts.
"""
