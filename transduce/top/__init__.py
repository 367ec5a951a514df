"""`transduce top`: a terminal view of a running server. Uses HTTP only and imports no other package of the project."""
