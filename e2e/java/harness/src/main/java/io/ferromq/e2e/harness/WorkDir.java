package io.ferromq.e2e.harness;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/** Where the clients keep logs and local offsets: the directory given, else one that goes with the JVM. */
public final class WorkDir {
    private WorkDir() {
    }

    public static Path of(Args args) throws IOException {
        String given = args.get("work-dir", null);
        if (given != null) {
            return Files.createDirectories(Path.of(given));
        }
        Path made = Files.createTempDirectory("ferromq-e2e-");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> delete(made)));
        return made;
    }

    private static void delete(Path dir) {
        try (Stream<Path> all = Files.walk(dir)) {
            all.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
