"""One client connection as a machine without I/O.

Bytes in; out come the bytes to forward and, rarely, commands for the driver.
"""
