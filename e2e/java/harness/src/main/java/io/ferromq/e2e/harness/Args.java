package io.ferromq.e2e.harness;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Command line of the form {@code WORD... --name value --name value}; nothing is optional in silence. */
public final class Args {
    private final List<String> words = new ArrayList<>();
    private final Map<String, List<String>> options = new LinkedHashMap<>();

    public Args(String[] args) {
        for (int i = 0; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                words.add(args[i]);
                continue;
            }
            if (i + 1 == args.length) {
                throw new IllegalArgumentException("option " + args[i] + " has no value");
            }
            options.computeIfAbsent(args[i].substring(2), k -> new ArrayList<>()).add(args[++i]);
        }
    }

    public List<String> words() {
        return words;
    }

    public String need(String name) {
        String value = get(name, null);
        if (value == null) {
            throw new IllegalArgumentException("option --" + name + " is missing");
        }
        return value;
    }

    /** The last value given, so that a caller can append an override. */
    public String get(String name, String otherwise) {
        List<String> values = options.get(name);
        return values == null ? otherwise : values.get(values.size() - 1);
    }

    public int number(String name, int otherwise) {
        String value = get(name, null);
        return value == null ? otherwise : Integer.parseInt(value);
    }

    public List<String> all(String name) {
        return options.getOrDefault(name, List.of());
    }
}
