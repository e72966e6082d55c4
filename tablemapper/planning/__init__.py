"""Query planning: the key or index, its ranges, the residual filter and the sort.

- `bounds`: from conditions on a template to two texts.
- `budget`: what one run of a query may use.
- `capabilities`: what an engine can do.
- `conditions`: predicates, normalised and taken apart by field.
- `plan`: what a plan is.
- `ranges`: a plan with values.
- `skip_scan`: partitions that are found one by one.
- `query_parts`: ranges of keys that together are a plan.
- `query_spec`: what a query wants, with its values and as a form.
- `shards`: shards that spread the rows of one partition.
- `scan_refusal`: why a scan was refused, and the index that would serve.
- `planner`: every path, and the best one.
- `projection`: from rows to entities and tuples.
- `query_text`: what a query asks, without its values, as data and as text.
- `cost`: what a plan would cost on Azure.
- `explanation`: a plan in words.
"""
