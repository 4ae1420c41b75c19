"""Where models' bytes lie, by digest: in the database, in a directory, or in an S3 bucket."""
