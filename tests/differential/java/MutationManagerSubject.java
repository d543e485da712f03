import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;

/**
 * new samples sample_s | quota user client limit | purge t | open id strict|permissive user client t
 * charge id value t | back id value t | left id t | plain user client value t
 */
final class MutationManagerSubject implements Oracle.Subject {
    private final Oracle.ManualTime time = new Oracle.ManualTime();
    private final Map<String, ControllerMutationQuota> quotas = new HashMap<>();
    private final Map<String, Sensor> sensors = new HashMap<>();
    private final Set<Sensor> seen = new HashSet<>();
    private Metrics metrics;
    private ControllerMutationQuotaManager manager;

    @Override
    public String answer(String[] op) {
        switch (op[0]) {
            case "new":
                if (manager != null)
                    manager.initiateShutdown();
                quotas.clear();
                sensors.clear();
                seen.clear();
                metrics = new Metrics(new MetricConfig(), List.of(), time);
                manager = new ControllerMutationQuotaManager(
                    new ClientQuotaManagerConfig(Integer.parseInt(op[1]), Integer.parseInt(op[2])),
                    metrics, time, "", Optional.empty());
                return "ok";
            case "quota":
                return Quotas.update(manager, op);
            case "purge":
                time.set(Long.parseLong(op[1]));
                Quotas.purge(metrics, seen);
                return "ok"; // how many: a broker counts from the last request, kvota from the last charge
            case "open":
                return open(op[1], op[2].equals("strict"), op[3], op[4], Long.parseLong(op[5]));
            case "charge":
                return charge(quotas.get(op[1]), Oracle.number(op[2]), Long.parseLong(op[3]));
            case "back":
                if (sensors.containsKey(op[1]))
                    sensors.get(op[1]).record(-Oracle.number(op[2]), Long.parseLong(op[3]), false);
                return "ok";
            case "left":
                time.set(Long.parseLong(op[2]));
                return state(quotas.get(op[1]));
            case "plain":
                time.set(Long.parseLong(op[4]));
                if (manager.quotasEnabled())
                    Quotas.sensors(manager, metrics, seen, op[1], op[2]);
                return Integer.toString(manager.maybeRecordAndGetThrottleTimeMs(
                    Quotas.session(op[1]), op[2], Oracle.number(op[3]), time.milliseconds()));
            default:
                throw Oracle.unknown(op);
        }
    }

    private String open(String id, boolean strict, String user, String client, long nowMs) {
        time.set(nowMs);
        sensors.remove(id);
        if (manager.quotasEnabled())
            sensors.put(id, Quotas.sensors(manager, metrics, seen, user, client).quotaSensor());
        quotas.put(id, strict
            ? manager.newStrictQuotaFor(Quotas.session(user), client)
            : manager.newPermissiveQuotaFor(Quotas.session(user), client));
        return manager.quotasEnabled() ? Double.toString(manager.quota(user, client).bound()) : "unbounded";
    }

    private String charge(ControllerMutationQuota quota, double value, long nowMs) {
        time.set(nowMs);
        try {
            quota.record(value);
            return "taken\t0\t" + state(quota);
        } catch (ThrottlingQuotaExceededException e) {
            return "rejected\t" + e.throttleTimeMs() + "\t" + state(quota);
        }
    }

    private static String state(ControllerMutationQuota quota) {
        return quota.isExceeded() + "\t" + quota.throttleTime();
    }
}
