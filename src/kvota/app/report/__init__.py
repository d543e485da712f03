"""Makes the report: tables of a record in, one HTML file with plots out."""
