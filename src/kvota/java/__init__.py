"""This room finds a Java to run Kafka and Spark with."""
