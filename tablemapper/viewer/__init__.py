"""The inspector: pages that show what is in a store, and never write.

- `security`: what every request has to pass, and what every answer carries.
- `cells`: values as pages show them.
- `maintained`: what is maintained from an entity, and its class as source.
- `pages`: what stands on each page, as data.
- `questions`: the page of a question, and its rows as a file.
- `numbers`: the pages of all that a store holds.
- `app`: the pages as an ASGI application.
- `notebook`: what notebooks show of entities, queries and reports.
- `opening`: the function that users call; it loads the others when it is called.
"""
