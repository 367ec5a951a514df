"""`transduce top`: a terminal view of a running server, by HTTP. Of the project it imports only `transduce`."""
