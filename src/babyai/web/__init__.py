"""The page of `babyai play`: a local web server, and the page that it serves from `static/`."""
