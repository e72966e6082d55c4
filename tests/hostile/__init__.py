"""Files that somebody damaged, on purpose or not, and everything that is done with a store tried on each of them.

A case is a word: what is done to the file follows from it, so that a finding can be had again with
``python -m tests.hostile h4711``. Cases run in processes of their own, which an operation that takes 5 seconds of the
processor ends.

- `operations`: a store with a bit of everything, and all that is done with it.
- `damage`: what is done to its file.
- `evolving`, `building`: stores amid migrations and amid builds, and all that is done with them.
- `catalogues`: what is done to what such a file says of itself, and to its cells.
- `runs`: the processes that run cases, and what is found.
"""
