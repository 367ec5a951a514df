"""`transduce size`: how many servers a load needs, from the measured speed of one of them (docs/sizing.md)."""
