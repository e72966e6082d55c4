"""What is unwise, though it is possible: advice, with the mend to paste.

- `advice`: what one piece of advice is.
- `places`: keys and indexes, as the rules look at them, and declarations that would be better.
- `rules`: the rules over declarations, a function for each code, in tables of them.
- `data`: the rules over what a store holds.
- `advise`: the advice on classes.
"""
