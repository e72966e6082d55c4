"""The picture of a model: its classes, and what is maintained from each, as trees below each other.

- `trees`: what is drawn, as data.
- `svg`: as an image, for a page or for a file.
- `markup`: as text, and as Mermaid.
"""
