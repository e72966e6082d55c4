"""The engine for Azure Table storage: entities in the tables of one account.

- `service`: requests as frozen data, and what sends them.
- `accounts`: connection strings, endpoints, keys, signatures and tokens: what proves to a service who asks.
- `batches`: multipart messages of transactions, written and read back.
- `wire`: one request out, one answer in, over pooled connections.
- `drive`: runs what generators say: requests, several works side by side, pauses.
- `names`: names of hidden properties, rows and tables.
- `rows`: a model's rows to the members of a JSON body and back, with what is hidden.
- `catalogue`: the catalogue in its table, what opening makes of it, and the classes as it has them.
- `writes`: one write: what is read for it, what is sent, what a refusal means, what is done in doubt.
- `reads`: the ranges of a plan as requests, pages, merges, and the entities of index rows.
- `check`: what the tables hold, for the comparison with the entities.
- `engine`: `AzureEngine`: the protocol, by the modules above.
"""
