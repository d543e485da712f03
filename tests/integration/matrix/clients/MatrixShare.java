import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;

/** The step of a share group (KIP-932): each value is accepted. */
public final class MatrixShare {
    private static final long PATIENCE_MS = 60_000;

    public static String run(Admin admin, Properties properties, String name, int records) throws Exception {
        String group = name + "-share";
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
            new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        properties.put("group.id", group);
        // Records may come again where an acceptance is late; each value counts once.
        Set<Long> values = new HashSet<>();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(name));
            while (values.size() < records && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(500))) {
                    values.add(Long.parseLong(one.value()));
                }
            }
            consumer.commitSync();
        }
        long sum = 0;
        for (long value : values) {
            sum += value;
        }
        return values.size() + " records, sum " + sum;
    }
}
