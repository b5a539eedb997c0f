package io.ferromq.e2e.harness;

import java.util.LinkedHashMap;
import java.util.Map;

/** Writes JSON lines. The library of the peers under test is not used to describe them. */
public final class Json {
    private Json() {
    }

    /** {@code object("a", 1, "b", "x")}; members keep their order. */
    public static Map<String, Object> object(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        return map;
    }

    public static String text(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map<?, ?> map) {
            String gap = "{";
            for (Map.Entry<?, ?> e : map.entrySet()) {
                out.append(gap);
                string(String.valueOf(e.getKey()), out);
                out.append(':');
                write(e.getValue(), out);
                gap = ",";
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Iterable<?> list) {
            out.append('[');
            String gap = "";
            for (Object item : list) {
                out.append(gap);
                write(item, out);
                gap = ",";
            }
            out.append(']');
        } else {
            string(value.toString(), out);
        }
    }

    private static void string(String s, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            switch (c) {
                case '"' -> out.append("\\\"");
                case '\\' -> out.append("\\\\");
                case '\n' -> out.append("\\n");
                default -> {
                    if (c < 0x20) {
                        out.append(String.format("\\u%04x", (int) c));
                    } else {
                        out.append(c);
                    }
                }
            }
        }
        out.append('"');
    }
}
