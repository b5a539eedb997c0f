package io.ferromq.e2e.peer;

import io.ferromq.e2e.harness.Json;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;

/** Bloom filters of groups, the bit maps of some of them, and the file that keeps groups' expressions. */
final class GoldenFilters {
    private static final List<String> KEYS = List.of("", "a", "g#t", "CID_orders#Orders", "group-17#a-topic-with-a-longer-name",
            "grüße#世界", "0123456789abcde#", "0123456789abcdef#", "%RETRY%g#%RETRY%t", "x".repeat(200) + "#T");

    private GoldenFilters() {
    }

    static void write(Golden.Sink sink) throws Exception {
        for (int[] shape : new int[][] {{20, 32}, {20, 64}, {10, 128}, {1, 1}, {99, 1}, {50, 7}, {5, 1000}, {1, 5000}, {33, 100},
            {25, 16}, {75, 3}, {2, 2}}) {
            BloomFilter filter = BloomFilter.createByFn(shape[0], shape[1]);
            BitsArray bits = BitsArray.create(filter.getM());
            Map<String, Object> keys = new TreeMap<>();
            for (String key : KEYS) {
                List<Object> positions = new ArrayList<>();
                for (int position : filter.calcBitPositions(key)) {
                    positions.add(position);
                }
                keys.put(key, positions);
                filter.hashTo(key, bits);
            }
            sink.line("bloom-" + shape[0] + "-" + shape[1], bits.bytes(), Json.object("kind", "bloom", "errorRate", shape[0],
                    "groups", shape[1], "k", filter.getK(), "m", filter.getM(), "keys", keys));
        }
        ConsumerFilterManager manager = new ConsumerFilterManager();
        manager.register("Orders", "CID_a", "price > 10", "SQL92", 7);
        manager.register("Orders", "CID_b", "region = 'eu' and TAGS is not null", "SQL92", 8);
        manager.register("Other", "CID_a", "a between 1 and 2", "SQL92", 9);
        for (String topic : List.of("Orders", "Other")) {
            for (ConsumerFilterData data : manager.get(topic)) {
                data.setBornTime(1_640_995_200_000L);
            }
        }
        manager.get("Orders", "CID_b").setDeadTime(Long.MAX_VALUE);
        sink.line("consumerFilter.json", manager.encode().getBytes(StandardCharsets.UTF_8),
                Json.object("kind", "file", "errorRate", 20, "groups", 64));
    }
}
