"""Programs that run: their command lines, and the leash on which they run."""
