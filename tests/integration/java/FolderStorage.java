import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** A tier of storage for a broker (KIP-405): a folder on this machine, with a folder for each segment. */
public final class FolderStorage implements RemoteStorageManager {
    private static final String RECORDS = "RECORDS";
    private Path folder;

    @Override
    public void configure(Map<String, ?> settings) {
        folder = Path.of(settings.get("folder").toString());
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
        throws RemoteStorageException {
        try {
            Path at = Files.createDirectories(folderOf(segment));
            copy(data.offsetIndex(), at.resolve(IndexType.OFFSET.name()));
            copy(data.timeIndex(), at.resolve(IndexType.TIMESTAMP.name()));
            copy(data.producerSnapshotIndex(), at.resolve(IndexType.PRODUCER_SNAPSHOT.name()));
            if (data.transactionIndex().isPresent()) {
                copy(data.transactionIndex().get(), at.resolve(IndexType.TRANSACTION.name()));
            }
            ByteBuffer epochs = data.leaderEpochIndex().duplicate();
            byte[] bytes = new byte[epochs.remaining()];
            epochs.get(bytes);
            Files.write(at.resolve(IndexType.LEADER_EPOCH.name()), bytes);
            copy(data.logSegment(), at.resolve(RECORDS));
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
        return Optional.empty();
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int first) throws RemoteStorageException {
        return fetchLogSegment(segment, first, Integer.MAX_VALUE);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int first, int last)
        throws RemoteStorageException {
        try (FileChannel file = FileChannel.open(fileOf(segment, RECORDS), StandardOpenOption.READ)) {
            long end = Math.min(file.size(), last == Integer.MAX_VALUE ? file.size() : last + 1L);
            ByteBuffer read = ByteBuffer.allocate((int) Math.max(0, end - first));
            file.position(first);
            Channels.newInputStream(file).readNBytes(read.array(), 0, read.capacity());
            return new ByteArrayInputStream(read.array());
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        try {
            return Files.newInputStream(fileOf(segment, type.name()));
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        try (Stream<Path> files = Files.list(folderOf(segment))) {
            for (Path file : (Iterable<Path>) files::iterator) {
                Files.delete(file);
            }
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public void close() {
    }

    private Path folderOf(RemoteLogSegmentMetadata segment) {
        return folder.resolve(segment.remoteLogSegmentId().id().toString());
    }

    private Path fileOf(RemoteLogSegmentMetadata segment, String name) throws RemoteResourceNotFoundException {
        Path file = folderOf(segment).resolve(name);
        if (!Files.exists(file)) {
            throw new RemoteResourceNotFoundException("no " + file);
        }
        return file;
    }

    private static void copy(Path from, Path to) throws IOException {
        Files.copy(from, to, StandardCopyOption.REPLACE_EXISTING);
    }
}
