"""The inspector: pages that show what is in a store, and never write.

- `security`: what every request has to pass, and what every answer carries.
- `cells`: values as pages show them.
- `typed_conditions`: conditions as a person types them.
- `derived_rows`: what is maintained from an entity, and its class as source.
- `snippets`: queries and writes as Python to copy.
- `summaries`: totals and groups of a query, and counts by value.
- `views`: what stands on each page, as data.
- `query_page`: the page of a question, and its rows as a file.
- `store_pages`: the pages of all that a store holds.
- `asgi`: the pages as an ASGI application.
- `notebook`: what notebooks show of entities, queries and reports.
- `inspector`: the function that users call; it loads the others when it is called.
"""
