package io.ferromq.e2e.harness;

import java.util.Objects;
import java.util.concurrent.Callable;

/** What a case says when it is not content, and how it waits: for a condition, with a generous bound. */
public final class Check {
    /** Bound of every wait, in seconds; a wait that is met earlier ends earlier. */
    public static final int PATIENCE = 60;

    private Check() {
    }

    public static void that(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    public static void equal(Object expected, Object actual, String what) {
        if (!Objects.equals(expected, actual)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    public static void until(String what, Callable<Boolean> condition) throws Exception {
        eventually(what, () -> condition.call() ? Boolean.TRUE : null);
    }

    /** As {@link #until}, for what has a longer bound of its own. */
    public static void untilWithin(int seconds, String what, Callable<Boolean> condition) throws Exception {
        eventually(seconds, what, () -> condition.call() ? Boolean.TRUE : null);
    }

    /** The first non-null value; what the attempt throws meanwhile is kept for the message. */
    public static <T> T eventually(String what, Callable<T> attempt) throws Exception {
        return eventually(PATIENCE, what, attempt);
    }

    private static <T> T eventually(int seconds, String what, Callable<T> attempt) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (true) {
            Throwable last = null;
            try {
                T value = attempt.call();
                if (value != null) {
                    return value;
                }
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                last = e;
            }
            if (System.nanoTime() > end) {
                throw new AssertionError("not within " + seconds + " s: " + what, last);
            }
            Thread.sleep(50);
        }
    }
}
