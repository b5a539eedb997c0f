package io.ferromq.e2e.peer;

import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Json;
import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;

/**
 * Writes what Java's own 4.9.7 classes put on the wire and on disk, next to what it means, so that other
 * implementations can be tested without a JVM.
 *
 * <p>{@code --out DIR}: {@code frames.jsonl}, {@code bodies.jsonl}, {@code records.jsonl}, {@code texts.jsonl},
 * {@code filters.jsonl}, {@code allocations.txt}, and {@code index.json}, which describes the members. The output does not depend on time or place.
 */
public final class Golden {
    private Golden() {
    }

    /** One line of a file: {@code bytes} as hex digits, and the meaning. */
    interface Sink {
        void line(String name, byte[] bytes, Map<String, Object> meaning) throws Exception;
    }

    @FunctionalInterface
    private interface Source {
        void writeTo(Sink sink) throws Exception;
    }

    public static void main(String[] argv) throws Exception {
        System.setProperty("rocketmq.remoting.version", "407");
        Path out = Path.of(new Args(argv).need("out"));
        Files.createDirectories(out);
        write(out, "frames.jsonl", GoldenFrames::write);
        write(out, "bodies.jsonl", GoldenBodies::write);
        write(out, "answers.jsonl", GoldenAnswers::write);
        write(out, "records.jsonl", GoldenRecords::records);
        write(out, "texts.jsonl", GoldenRecords::texts);
        write(out, "filters.jsonl", GoldenFilters::write);
        GoldenAllocations.write(out);
        Map<String, Object> index = Json.object(
                "writtenBy", "Apache RocketMQ 4.9.7",
                "files", Json.object(
                        "frames.jsonl", "whole frames. header: the request code or response; variant full: every argument set, least: only the mandatory ones",
                        "bodies.jsonl", "bodies. value: the same as strict JSON, maps keyed by queues as lists of [topic, broker, queue, value]",
                        "answers.jsonl", "further bodies; text: the same as text",
                        "records.jsonl", "stored messages and batch bodies",
                        "texts.jsonl", "properties, ids, hashes and checksums",
                        "filters.jsonl", "shapes of bloom filters with the positions of some keys and the map that has them all; the file consumerFilter.json",
                        "allocations.txt", "how groups share queues: a line = with topic, brokers and members, then a line for each strategy with the numbers of each member's queues"),
                "members", Json.object("name", "what it is, unique in its file", "hex", "the bytes", "others", "field values"));
        Files.writeString(out.resolve("index.json"), Json.text(index) + "\n");
        System.exit(0);
    }

    private static void write(Path dir, String file, Source source) throws Exception {
        try (BufferedWriter w = Files.newBufferedWriter(dir.resolve(file), StandardCharsets.UTF_8)) {
            source.writeTo((name, bytes, meaning) -> {
                Map<String, Object> line = Json.object("name", name);
                line.putAll(meaning);
                line.put("hex", HexFormat.of().formatHex(bytes));
                w.write(Json.text(line));
                w.write('\n');
            });
        }
    }
}
