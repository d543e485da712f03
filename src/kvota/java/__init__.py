"""Finding a Java to run Kafka and Spark with."""
