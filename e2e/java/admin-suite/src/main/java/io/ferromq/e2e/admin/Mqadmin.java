package io.ferromq.e2e.admin;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The command line of the official tools, in this process: its exit code is always 0, so the text has to tell. */
final class Mqadmin {
    private Mqadmin() {
    }

    /** Some commands keep the connection of their first run; a new list of commands has new ones. */
    private static final class Commands extends MQAdminStartup {
        static void makeAnew() {
            subCommandList.clear();
        }
    }

    /** Runs one command and gives back all that it printed. Not for two threads at once: it borrows System.out. */
    static synchronized String run(String namesrv, String command) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream kept = new ByteArrayOutputStream();
        try (PrintStream borrowed = new PrintStream(kept, true, StandardCharsets.UTF_8)) {
            System.setOut(borrowed);
            System.setErr(borrowed);
            System.setProperty("rocketmq.namesrv.addr", namesrv);
            Commands.makeAnew();
            MQAdminStartup.main0(command.trim().split("\\s+"), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return kept.toString(StandardCharsets.UTF_8);
    }
}
