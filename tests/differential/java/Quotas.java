import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientSensors;

/** What both quota managers' subjects do alike. */
final class Quotas {
    private Quotas() { }

    /** Words: quota, user, client, limit; "-" is an absent part, "*" the default, "=x" a name. */
    static String update(ClientQuotaManager manager, String[] op) {
        Optional<ClientQuotaEntity.ConfigEntity> user = switch (op[1].charAt(0)) {
            case '-' -> Optional.empty();
            case '*' -> Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
            default -> Optional.of(new ClientQuotaManager.UserEntity(Sanitizer.sanitize(op[1].substring(1))));
        };
        Optional<ClientQuotaEntity.ConfigEntity> client = switch (op[2].charAt(0)) {
            case '-' -> Optional.empty();
            case '*' -> Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
            default -> Optional.of(new ClientQuotaManager.ClientIdEntity(op[2].substring(1)));
        };
        manager.updateQuota(user, client, op[3].equals("none") ? Optional.empty() : Optional.of(Oracle.bound(op[3])));
        return Boolean.toString(manager.quotasEnabled());
    }

    static Session session(String user) {
        return new Session(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, user), null);
    }

    /**
     * The sensors of a client at the time now. The registry of a broker removes expired sensors
     * every 30 s; here that happens when one is asked for, so that it does not depend on a thread.
     */
    static ClientSensors sensors(ClientQuotaManager manager, Metrics metrics, Set<Sensor> seen, String user, String client) {
        Sensor sensor = manager.getOrCreateQuotaSensors(session(user), client).quotaSensor();
        if (sensor.hasExpired())
            metrics.removeSensor(sensor.name());
        ClientSensors sensors = manager.getOrCreateQuotaSensors(session(user), client);
        seen.add(sensors.quotaSensor());
        return sensors;
    }

    /** Removes what has expired, as the registry's own task would now; returns how many. */
    static int purge(Metrics metrics, Set<Sensor> seen) {
        int removed = 0;
        for (Sensor sensor : List.copyOf(seen)) {
            if (metrics.getSensor(sensor.name()) != sensor) {
                seen.remove(sensor);
            } else if (sensor.hasExpired()) {
                metrics.removeSensor(sensor.name());
                seen.remove(sensor);
                removed++;
            }
        }
        return removed;
    }
}
