package io.ferromq.e2e.harness;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Named cases, run side by side because most of their time is spent waiting for a broker.
 *
 * <p>Each case prints one JSON line {@code {"case","ok","detail","millis"}} when it ends; the last line is
 * {@code {"summary":{"passed","failed","failures","millis"}}}.
 */
public final class Suite {
    /** When a case runs if it is not asked for by name. */
    public enum Group {
        /** Runs always, next to others. */
        CORE,
        /** Runs always, after the others and alone, since it disturbs the whole cluster. */
        ALONE,
        /** Runs with {@code --cases all} or by name: needs a feature that a broker may have switched off. */
        EXTRA,
        /** Runs by name only: needs settings that other cases are not to run with. */
        NAMED
    }

    private record Case(String name, Group group, Callable<String> body) {
    }

    /** A case that runs longer is reported as failed, with what its thread is doing. */
    private static final int CASE_LIMIT_SECONDS = 240;

    private final Map<String, Case> cases = new LinkedHashMap<>();
    private final PrintStream out;

    public Suite(PrintStream out) {
        this.out = out;
    }

    public Suite add(String name, Group group, Callable<String> body) {
        if (cases.put(name, new Case(name, group, body)) != null) {
            throw new IllegalArgumentException("two cases are named " + name);
        }
        return this;
    }

    /**
     * @param wanted {@code core} (default), {@code all}, or names joined by commas; {@code -name} takes one out
     * @return 0 when every case passed, 1 otherwise
     */
    public int run(String wanted, int parallel) throws InterruptedException {
        long start = System.nanoTime();
        List<Case> chosen = choose(wanted);
        List<String> failures = new ArrayList<>();
        ExecutorService pool = Executors.newCachedThreadPool(r -> {
            Thread t = new Thread(r);
            t.setDaemon(true);
            return t;
        });
        Semaphore slots = new Semaphore(parallel);
        List<Future<Boolean>> running = new ArrayList<>();
        List<Case> together = chosen.stream().filter(c -> c.group != Group.ALONE).toList();
        for (Case c : together) {
            running.add(pool.submit(() -> {
                slots.acquire();
                try {
                    return one(c, pool);
                } finally {
                    slots.release();
                }
            }));
        }
        for (int i = 0; i < together.size(); i++) {
            collect(together.get(i), running.get(i), failures);
        }
        for (Case c : chosen) {
            if (c.group == Group.ALONE) {
                collect(c, pool.submit(() -> one(c, pool)), failures);
            }
        }
        line(Json.object("summary", Json.object("passed", chosen.size() - failures.size(), "failed", failures.size(),
                "failures", failures, "millis", millisSince(start))));
        return failures.isEmpty() ? 0 : 1;
    }

    private List<Case> choose(String wanted) {
        List<String> words = Arrays.stream(wanted.split(",")).map(String::trim).filter(w -> !w.isEmpty()).toList();
        boolean byName = words.stream().anyMatch(w -> !w.startsWith("-") && !w.equals("core") && !w.equals("all"));
        for (String w : words) {
            String name = w.startsWith("-") ? w.substring(1) : w;
            if (!name.equals("core") && !name.equals("all") && !cases.containsKey(name)) {
                throw new IllegalArgumentException("no case is named " + name + "; there are " + cases.keySet());
            }
        }
        return cases.values().stream()
                .filter(c -> words.contains(c.name) || (c.group != Group.NAMED && words.contains("all"))
                        || (c.group != Group.EXTRA && c.group != Group.NAMED && (words.contains("core") || !byName)))
                .filter(c -> !words.contains("-" + c.name))
                .toList();
    }

    private static void collect(Case c, Future<Boolean> result, List<String> failures) throws InterruptedException {
        try {
            if (!result.get()) {
                failures.add(c.name);
            }
        } catch (java.util.concurrent.ExecutionException e) {
            failures.add(c.name + " (" + e.getCause() + ")");
        }
    }

    private boolean one(Case c, ExecutorService pool) throws InterruptedException {
        long start = System.nanoTime();
        Thread[] runner = new Thread[1];
        Future<String> body = pool.submit(() -> {
            runner[0] = Thread.currentThread();
            runner[0].setName("case-" + c.name);
            return c.body.call();
        });
        boolean ok = false;
        String detail;
        try {
            detail = body.get(CASE_LIMIT_SECONDS, TimeUnit.SECONDS);
            ok = true;
        } catch (TimeoutException e) {
            detail = "still running after " + CASE_LIMIT_SECONDS + " s at "
                    + (runner[0] == null ? "?" : Arrays.toString(runner[0].getStackTrace()));
            body.cancel(true);
        } catch (java.util.concurrent.ExecutionException e) {
            detail = explain(e.getCause());
        }
        line(Json.object("case", c.name, "ok", ok, "detail", detail, "millis", millisSince(start)));
        return ok;
    }

    private synchronized void line(Object o) {
        out.println(Json.text(o));
        out.flush();
    }

    private static String explain(Throwable t) {
        StringBuilder text = new StringBuilder();
        for (Throwable c = t; c != null; c = c.getCause()) {
            text.append(text.length() == 0 ? "" : " <- ").append(c);
            for (StackTraceElement e : c.getStackTrace()) {
                if (e.getClassName().startsWith("io.ferromq.")) {
                    text.append(" (").append(e.getFileName()).append(':').append(e.getLineNumber()).append(')');
                    if (!e.getFileName().equals("Check.java")) {
                        break;
                    }
                }
            }
        }
        return text.toString();
    }

    private static long millisSince(long nanos) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - nanos);
    }
}
