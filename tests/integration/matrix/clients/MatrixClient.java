import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * What a client does in the matrix, with Kafka's own library from 2.5 on. The last argument, "consumer" or "classic", says whether
 * there are groups of KIP-848; where there are, MatrixShare reads as a share group.
 */
public final class MatrixClient {
    private static final long PATIENCE_MS = 60_000;
    private static String[] args;
    private static String name;
    private static int records;

    public static void main(String[] given) throws Exception {
        args = given;
        name = args[4];
        records = Integer.parseInt(args[5]);
        boolean isNew = args[7].equals("consumer");
        try (Admin admin = Admin.create(properties())) {
            DescribeClusterResult cluster = admin.describeCluster();
            TreeSet<Integer> nodes = new TreeSet<>();
            for (Node node : cluster.nodes().get()) {
                nodes.add(node.id());
            }
            say("cluster", cluster.clusterId().get() + ", nodes " + nodes);
            NewTopic first = new NewTopic(name, 3, (short) 3);
            NewTopic second = new NewTopic(name + "-t", 1, (short) 3);
            admin.createTopics(List.of(first, second)).all().get();
            say("created", "again: " + errorOf(admin.createTopics(List.of(first)).all()));
            describe(admin, isNew ? "topicNameValues" : "values");
            produce();
            say("ends", ends(admin, name, 3));
            say("classic", consume(name, name + "-classic", records, Map.of()));
            if (isNew) {
                say("consumer", consume(name, name + "-consumer", records, Map.of("group.protocol", "consumer")));
                Class<?> share = Class.forName("MatrixShare");
                Object said = share.getMethod("run", Admin.class, Properties.class, String.class, int.class)
                    .invoke(null, admin, properties(), name, records);
                say("share", said.toString());
            }
            Map<Integer, Long> committed = new TreeMap<>();
            admin.listConsumerGroupOffsets(name + "-classic").partitionsToOffsetAndMetadata().get()
                .forEach((partition, at) -> committed.put(partition.partition(), at.offset()));
            say("committed", committed.toString());
            transactions();
            say("transactions' end", ends(admin, name + "-t", 1));
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties())) {
                say("denied", errorOf(producer.send(new ProducerRecord<>(args[6], "1"))));
            }
            say("denied group", deniedGroup());
            admin.deleteTopics(List.of(name, name + "-t")).all().get();
            say("deleted", "again: " + errorOf(admin.deleteTopics(List.of(name)).all()));
        }
        Properties wrong = properties();
        wrong.put("sasl.jaas.config", login("wrong"));
        try (Admin admin = Admin.create(wrong)) {
            say("wrong password", errorOf(admin.describeCluster().nodes()));
        }
    }

    private static void describe(Admin admin, String getter) throws Exception {
        TopicDescription topic = null;
        // A broker learns of topics a moment after they are made.
        while (topic == null) {
            DescribeTopicsResult answer = admin.describeTopics(List.of(name));
            Map<?, ?> topics = (Map<?, ?>) DescribeTopicsResult.class.getMethod(getter).invoke(answer);
            try {
                topic = (TopicDescription) ((Future<?>) topics.get(name)).get();
            } catch (ExecutionException failed) {
                if (!(failed.getCause() instanceof UnknownTopicOrPartitionException)) {
                    throw failed;
                }
                Thread.sleep(50);
            }
        }
        List<String> found = new ArrayList<>();
        for (TopicPartitionInfo one : topic.partitions()) {
            TreeSet<Integer> replicas = new TreeSet<>();
            one.replicas().forEach(node -> replicas.add(node.id()));
            found.add(one.partition() + "=" + replicas);
        }
        say("described", found.toString());
    }

    private static void produce() throws Exception {
        Properties properties = properties();
        properties.put("enable.idempotence", "true");
        List<Future<?>> told = new ArrayList<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            for (int number = 0; number < records; number++) {
                told.add(producer.send(new ProducerRecord<>(name, number % 3, null, Integer.toString(number))));
            }
            producer.flush();
        }
        for (Future<?> one : told) {
            one.get();
        }
        say("produced", told.size() + " acknowledged");
    }

    private static String consume(String topic, String group, int count, Map<String, String> more) {
        Properties properties = properties();
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.putAll(more);
        int came = 0;
        long sum = 0;
        long end = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(List.of(topic));
            while (came < count && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(500))) {
                    came++;
                    sum += Long.parseLong(one.value());
                }
            }
            consumer.commitSync();
        }
        return came + " records, sum " + sum;
    }

    private static void transactions() throws Exception {
        Properties properties = properties();
        properties.put("transactional.id", name + "-t");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            for (int first : new int[] {0, 100}) {
                producer.beginTransaction();
                for (int number = first; number < first + 10; number++) {
                    producer.send(new ProducerRecord<>(name + "-t", 0, null, Integer.toString(number)));
                }
                producer.flush();
                if (first == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        say("transactions", consume(name + "-t", name + "-rc", 10, Map.of("isolation.level", "read_committed")));
    }

    private static String deniedGroup() {
        try {
            return consume(name, "of-others", 1, Map.of());
        } catch (KafkaException error) {
            return error.getClass().getSimpleName();
        }
    }

    private static String ends(Admin admin, String topic, int partitions) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (int one = 0; one < partitions; one++) {
            asked.put(new TopicPartition(topic, one), OffsetSpec.latest());
        }
        Map<Integer, Long> found = new TreeMap<>();
        admin.listOffsets(asked).all().get().forEach((one, at) -> found.put(one.partition(), at.offset()));
        return found.toString();
    }

    private static String errorOf(Future<?> answer) throws Exception {
        try {
            answer.get();
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage();
        }
    }

    private static String login(String secret) {
        return "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"" + args[1] + "\" password=\""
            + secret + "\";";
    }

    private static Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("client.id", "java");
        properties.put("security.protocol", "SASL_SSL");
        properties.put("sasl.mechanism", "SCRAM-SHA-512");
        properties.put("sasl.jaas.config", login(args[2]));
        properties.put("ssl.truststore.location", args[3]);
        properties.put("ssl.truststore.type", "JKS");
        properties.put("ssl.truststore.password", "changeit");
        for (String side : List.of("key", "value")) {
            properties.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            properties.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return properties;
    }

    private static void say(String step, String result) {
        System.out.println(step + ": " + result);
    }
}
