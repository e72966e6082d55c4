"""Values as other programs have them: read, and told what is wrong with them.

- `json_reader`: JSON from outside.
- `arrow`: columns of Arrow, numpy and pandas.
- `column_errors`: what to write for a column of another type.
"""
