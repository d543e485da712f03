"""TLS: whom one trusts, what one shows, who the peer is by its certificate, and words for what goes wrong."""
