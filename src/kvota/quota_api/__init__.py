"""What AlterClientQuotas and DescribeClientQuotas do, as a broker of Kafka 4.3 does it; pure."""
