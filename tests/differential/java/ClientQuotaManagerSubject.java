import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/** new samples sample_s | quota user client limit | purge t | charge, refuse user client value t */
final class ClientQuotaManagerSubject implements Oracle.Subject {
    private final Oracle.ManualTime time = new Oracle.ManualTime();
    private final Set<Sensor> seen = new HashSet<>();
    private Metrics metrics;
    private ClientQuotaManager manager;

    @Override
    public String answer(String[] op) {
        switch (op[0]) {
            case "new":
                if (manager != null)
                    manager.initiateShutdown();
                seen.clear();
                metrics = new Metrics(new MetricConfig(), List.of(), time);
                manager = new ClientQuotaManager(
                    new ClientQuotaManagerConfig(Integer.parseInt(op[1]), Integer.parseInt(op[2])),
                    metrics, QuotaType.PRODUCE, time, "");
                return "ok";
            case "quota":
                return Quotas.update(manager, op);
            case "purge":
                time.set(Long.parseLong(op[1]));
                return Integer.toString(Quotas.purge(metrics, seen));
            case "charge":
            case "refuse":
                return charge(op[0], op[1], op[2], Oracle.number(op[3]), Long.parseLong(op[4]));
            default:
                throw Oracle.unknown(op);
        }
    }

    private String charge(String how, String user, String client, double value, long nowMs) {
        time.set(nowMs);
        String counter = "off";
        if (manager.quotasEnabled()) {
            Map<String, String> tags = Quotas.sensors(manager, metrics, seen, user, client).metricTags();
            double limit = manager.quota(user, client).bound();
            counter = tags.get("user") + "\t" + tags.get("client-id") + "\t" + limit;
        }
        int throttleMs = manager.maybeRecordAndGetThrottleTimeMs(Quotas.session(user), client, value, nowMs);
        if (how.equals("refuse") && manager.quotasEnabled())
            manager.unrecordQuotaSensor(Quotas.session(user), client, value, nowMs);
        return counter + "\t" + throttleMs;
    }
}
