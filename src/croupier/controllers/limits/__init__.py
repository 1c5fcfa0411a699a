"""CPU limits moved in place, and given back when nobody minds them."""
