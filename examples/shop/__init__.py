"""A shop in six versions; `shop_versions.py` deploys one after the other."""
