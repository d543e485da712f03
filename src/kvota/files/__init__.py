"""Files and folders: the cache, the folders of a run, and writing a file whole or not at all."""
