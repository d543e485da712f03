import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;

/** Kafka's own admin client: does what a line of its input says, and writes how many nanoseconds it took, and what came of it. */
public final class AdminBench {
    private AdminBench() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Admin admin = admin(args[0], args[1]);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            long begin = System.nanoTime();
            String said = "";
            if (words[0].equals("as")) {
                admin.close();
                admin = admin(args[0], words[1]);
                admin.describeCluster().nodes().get();
            } else {
                said = carryOut(admin, words[0], words[1], Integer.parseInt(words[2]));
            }
            System.out.println((System.nanoTime() - begin) + " " + said);
        }
        admin.close();
    }

    private static Admin admin(String servers, String clientId) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("client.id", clientId);
        return Admin.create(properties);
    }

    private static String carryOut(Admin admin, String what, String prefix, int count) throws Exception {
        switch (what) {
            case "describe":
                return "" + admin.describeTopics(names(prefix, count)).allTopicNames().get().size();
            case "create":
                admin.createTopics(topics(prefix, count)).all().get();
                return "" + count;
            case "create-once":
                return createOnce(admin, prefix, count);
            case "delete":
                admin.deleteTopics(names(prefix, count)).all().get();
                return "" + count;
            case "alter":
                admin.alterClientQuotas(alterations(Double.parseDouble(prefix), count)).all().get();
                return "" + count;
            default:
                throw new IllegalArgumentException(what);
        }
    }

    /** Two topics, without retries: how many are there, and the wait of the others in ms. */
    private static String createOnce(Admin admin, String prefix, int partitions) throws Exception {
        CreateTopicsOptions options = new CreateTopicsOptions().retryOnQuotaViolation(false);
        List<NewTopic> topics = new ArrayList<>();
        for (String name : names(prefix, 2)) {
            topics.add(new NewTopic(name, partitions, (short) 1));
        }
        CreateTopicsResult result = admin.createTopics(topics, options);
        int made = 0;
        int waitMs = 0;
        for (Map.Entry<String, KafkaFuture<Void>> each : result.values().entrySet()) {
            try {
                each.getValue().get();
                made += 1;
            } catch (ExecutionException error) {
                waitMs = ((ThrottlingQuotaExceededException) error.getCause()).throttleTimeMs();
            }
        }
        return made + " " + waitMs;
    }

    private static List<String> names(String prefix, int count) {
        List<String> names = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            names.add(prefix + "-" + number);
        }
        return names;
    }

    private static List<NewTopic> topics(String prefix, int count) {
        List<NewTopic> topics = new ArrayList<>();
        for (String name : names(prefix, count)) {
            topics.add(new NewTopic(name, 1, (short) 1));
        }
        return topics;
    }

    private static List<ClientQuotaAlteration> alterations(double value, int count) {
        List<ClientQuotaAlteration> alterations = new ArrayList<>();
        for (String name : names("user", count)) {
            ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, name));
            alterations.add(new ClientQuotaAlteration(entity, List.of(
                new ClientQuotaAlteration.Op("producer_byte_rate", value))));
        }
        return alterations;
    }
}
