"""The user's side: the `transduce` command and the HTTP client."""
