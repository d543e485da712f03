"""HTTP for those who watch a gateway: metrics, health, JSON. Nothing can be changed here."""
