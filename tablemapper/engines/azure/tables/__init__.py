"""The service and its tables: requests and how they are sent, and how entities look in them.

- `service`: requests as frozen data, and what sends them.
- `accounts`: connection strings, endpoints, keys, signatures and tokens: what proves to a service who asks.
- `multipart`: multipart messages of transactions, written and read back.
- `elapsed_clock`: seconds that go by, also while this machine sleeps.
- `wire`: one request out, one answer in, over pooled connections.
- `driver`: runs what generators say: requests, several works side by side, pauses.
- `background`: a thread that does again and again what is due.
- `reserved_names`: names of hidden properties, rows and tables.
- `entity_json`: a model's rows to the members of a JSON body and back, with what is hidden.
"""
