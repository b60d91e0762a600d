"""The pages of `babyai play` and `babyai runs`: a local web server, and the pages that it serves from `static/`."""
