"""Programs get their command lines here, and the leash on which they run."""
