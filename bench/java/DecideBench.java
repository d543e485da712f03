import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/** ns of CPU per decision of Kafka's own managers: rounds of n; one line "produce mutation" for each. */
public final class DecideBench {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    public static void main(String[] args) {
        int rounds = Integer.parseInt(args[0]);
        int n = Integer.parseInt(args[1]);
        Metrics metrics = new Metrics(new MetricConfig(), List.of(), Time.SYSTEM);
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(11, 1);
        ClientQuotaManager produce = new ClientQuotaManager(config, metrics, QuotaType.PRODUCE, Time.SYSTEM, "");
        ControllerMutationQuotaManager mutations =
            new ControllerMutationQuotaManager(config, metrics, Time.SYSTEM, "", Optional.empty());
        for (ClientQuotaManager manager : List.of(produce, mutations))
            manager.updateQuota(Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY), Optional.empty(),
                Optional.of(org.apache.kafka.common.metrics.Quota.upperBound(1e12)));
        Session session = new Session(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "alice"), null);
        long sum = 0;
        for (int round = 0; round < rounds; round++) {
            long start = THREADS.getCurrentThreadCpuTime();
            for (int i = 0; i < n; i++)
                sum += produce.maybeRecordAndGetThrottleTimeMs(session, "bench", 1136, System.currentTimeMillis());
            long middle = THREADS.getCurrentThreadCpuTime();
            for (int i = 0; i < n; i++) {
                try {
                    mutations.newStrictQuotaFor(session, "bench").record(4);
                } catch (ThrottlingQuotaExceededException refused) {
                    sum++;
                }
            }
            long end = THREADS.getCurrentThreadCpuTime();
            System.out.println((double) (middle - start) / n + " " + (double) (end - middle) / n);
        }
        System.err.println(sum);
        System.exit(0);
    }
}
