import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.commons.collections4.bloomfilter.BloomFilter;
import org.apache.commons.collections4.bloomfilter.EnhancedDoubleHasher;
import org.apache.commons.collections4.bloomfilter.LayerManager;
import org.apache.commons.collections4.bloomfilter.LayeredBloomFilter;
import org.apache.commons.collections4.bloomfilter.Shape;
import org.apache.commons.collections4.bloomfilter.SimpleBloomFilter;
import org.apache.commons.collections4.bloomfilter.WrappedBloomFilter;

/** Asks commons-collections' Bloom filters: one operation per line in (words between tabs), one answer out. */
public final class BloomOracle {

    /** A layer that knows when it was opened and how many numbers are in it. */
    static final class Layer extends WrappedBloomFilter<Layer, SimpleBloomFilter> {
        final long createdMs;
        int inserted = 0;

        Layer(Shape shape, long createdMs) {
            super(new SimpleBloomFilter(shape));
            this.createdMs = createdMs;
        }

        @Override
        public Layer copy() {
            throw new UnsupportedOperationException("nothing here is copied");
        }
    }

    private static long nowMs;
    private static Shape shape;
    private static long windowMs;
    private static int room;
    private static long layerMs;
    private static int layersMax;
    private static LayeredBloomFilter<Layer> layers; // null: nothing was asked yet

    private static String ofShape(int numbers, double probability) {
        Shape made;
        try {
            made = Shape.fromNP(numbers, probability);
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
        int bits = made.getNumberOfBits();
        return String.join(
                "\t",
                "" + bits,
                "" + made.getNumberOfHashFunctions(),
                "" + made.getProbability(numbers),
                "" + made.getProbability(2 * (numbers / 3)),
                "" + made.estimateN(bits / 3),
                "" + made.estimateN(bits));
    }

    private static LayeredBloomFilter<Layer> layered() {
        Supplier<Layer> supplier = () -> new Layer(shape, nowMs);
        LayerManager<Layer> manager = LayerManager.<Layer>builder()
                .setSupplier(supplier)
                .setExtendCheck(of -> {
                    Layer last = of.last();
                    boolean isFull = last.inserted >= room && livingLayers() < layersMax;
                    return last.createdMs + layerMs <= nowMs || isFull;
                })
                .setCleanup(of -> of.removeIf(layer -> layer.createdMs + windowMs <= nowMs))
                .get();
        return new LayeredBloomFilter<>(shape, manager);
    }

    private static boolean lives(int at) {
        return layers.get(at).createdMs + windowMs > nowMs;
    }

    private static int livingLayers() {
        int living = 0;
        for (int at = 0; at < layers.getDepth(); at++) {
            living += lives(at) ? 1 : 0;
        }
        return living;
    }

    /** Expired layers answer until the next merge: whoever looks leaves them out. */
    private static boolean meets(EnhancedDoubleHasher hasher) {
        boolean isSeen = false;
        boolean isYoung = false;
        if (layers == null) {
            layers = layered();
        }
        for (int at : layers.find(hasher)) { // the newest comes last
            isSeen |= lives(at);
            isYoung = layers.get(at).createdMs + layerMs > nowMs;
        }
        if (!isYoung) {
            layers.merge(hasher);
            layers.get(layers.getDepth() - 1).inserted++;
        }
        return isSeen;
    }

    private static String depth() {
        StringBuilder cardinalities = new StringBuilder();
        for (int at = 0; at < layers.getDepth(); at++) {
            if (lives(at)) {
                cardinalities.append('\t').append(layers.get(at).cardinality());
            }
        }
        return livingLayers() + cardinalities.toString();
    }

    private static String answer(String[] op) {
        switch (op[0]) {
            case "shape":
                return ofShape(Integer.parseInt(op[1]), Double.parseDouble(op[2]));
            case "indices": {
                Shape of = Shape.fromKM(Integer.parseInt(op[2]), Integer.parseInt(op[1]));
                long first = Long.parseUnsignedLong(op[3]);
                long second = Long.parseUnsignedLong(op[4]);
                int[] indices = new EnhancedDoubleHasher(first, second).indices(of).asIndexArray();
                return Arrays.stream(indices).mapToObj(String::valueOf).collect(Collectors.joining("\t"));
            }
            case "layers": {
                shape = Shape.fromNP(Integer.parseInt(op[1]), Double.parseDouble(op[2]));
                room = Integer.parseInt(op[1]);
                windowMs = Long.parseLong(op[3]);
                layerMs = Long.parseLong(op[4]);
                layersMax = Integer.parseInt(op[5]);
                layers = null;
                return "ok";
            }
            case "meet": {
                nowMs = Long.parseLong(op[1]);
                long word = Long.parseUnsignedLong(op[2]);
                boolean wasSeen = meets(new EnhancedDoubleHasher(word & 0xFFFFFFFFL, word >>> 32));
                return wasSeen + "\t" + depth();
            }
            default:
                throw new IllegalArgumentException("unknown operation: " + String.join(" ", op));
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.print(answer(line.split("\t", -1)));
            answers.print('\n');
        }
        answers.flush();
    }
}
