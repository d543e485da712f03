import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many command lines of kafka-configs.sh in one JVM, one after the other.
 *
 * Each line of stdin is one, its arguments separated by U+001F. For each it writes a line with exit code and the
 * lengths of what the tool has written to stdout and stderr, and then both.
 */
public final class ConfigCommands {
    private static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    /** What a command line has written so far. */
    private static final class Written extends OutputStream {
        private ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int one) {
            bytes.write(one);
        }

        @Override
        public synchronized void write(byte[] some, int from, int count) {
            bytes.write(some, from, count);
        }

        synchronized byte[] soFar() {
            return bytes.toByteArray();
        }

        synchronized void forget() {
            bytes.reset();
        }
    }

    private static final Written OUT = new Written();
    private static final Written ERR = new Written();
    // The tool catches whatever ends it and would go on: what counts is what there was at its first exit.
    private static String ended;
    private static byte[] out;
    private static byte[] err;

    public static void main(String[] args) throws IOException {
        PrintStream answers = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> {
            end(String.valueOf(code));
            throw new Ended();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            run(line.split("\u001f", -1));
            answers.write((ended + " " + out.length + " " + err.length + "\n").getBytes(StandardCharsets.UTF_8));
            answers.write(out);
            answers.write(err);
            answers.flush();
        }
    }

    private static void run(String[] arguments) {
        OUT.forget();
        ERR.forget();
        ended = null;
        try {
            kafka.admin.ConfigCommand.main(arguments);
        } catch (Ended expected) {
            // by its own wish
        }
        end("0");
    }

    private static void end(String code) {
        if (ended == null) {
            System.out.flush();
            System.err.flush();
            ended = code;
            out = OUT.soFar();
            err = ERR.soFar();
        }
    }
}
