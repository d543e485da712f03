"""What ``kafka-configs.sh`` does, in its own words, without a JVM: ``kvota configs``."""
