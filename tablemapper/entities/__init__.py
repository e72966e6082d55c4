"""What a class body declares: fields, key, indexes and aggregates, as frozen data.

- `fields`: `Field` and its options.
- `key`, `index`: keys and indexes as they are declared, and what calling one gives.
- `declaration`: a class, compiled.
- `body`: a class body, read.
- `etag`, `json`, `pydantic`: ETags as text; entities as JSON; what pydantic, and so FastAPI, asks of a class.
- `constructor`: the source of constructors and setters.
- `measures`: what may be declared as an aggregate.
- `entity`: `Record`, `Entity` and the class they are made of.
- `aggregates`: the class of aggregates.
"""
