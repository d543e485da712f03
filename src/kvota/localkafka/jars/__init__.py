"""What Kafka's programs are made of: jars, fetched and verified, and what is made from them once."""
