package io.ferromq.e2e.client;

import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.WorkDir;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * What an application does with the official client, as named cases.
 *
 * <p>{@code suite --namesrv ADDR [--cases core|all|NAMES] [--prefix P] [--parallel N]}: runs cases.
 * {@code send-phase --namesrv ADDR --ledger FILE [--count N] [--queues N] [--prefix P] [--stop-on-error true]}: sends
 * and writes what was acknowledged. {@code verify-phase --namesrv ADDR --ledger FILE}: wants all of it back.
 * {@code fixture-phase --namesrv ADDR --messages FILE --manifest FILE}: wants what a sample store is known to hold.
 * {@code member --namesrv ADDR --group G --topic T}: consumes as one member of a group, see {@link Member}.
 * {@code load --namesrv ADDR}: processor time per message, see {@link Load}.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        String work = WorkDir.of(args).toString();
        System.setProperty("rocketmq.client.logRoot", work);
        System.setProperty("rocketmq.client.logLevel", args.get("log-level", "WARN"));
        System.setProperty("rocketmq.client.localOffsetStoreDir", work + "/offsets");
        System.setProperty("user.home", work);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String what = args.words().isEmpty() ? "suite" : args.words().get(0);
        // A run must not meet what an earlier run left on the same cluster.
        String prefix = args.get("prefix", "s" + Long.toString(System.currentTimeMillis(), 36));
        int code;
        try (Cluster cluster = new Cluster(args.need("namesrv"), prefix)) {
            code = switch (what) {
                case "suite" -> {
                    Suite suite = new Suite(out);
                    SendCases.add(suite, cluster);
                    ReceiveCases.add(suite, cluster);
                    PullCases.add(suite, cluster);
                    GroupCases.add(suite, cluster);
                    QueryCases.add(suite, cluster);
                    ExtraCases.add(suite, cluster);
                    cluster.start();
                    yield suite.run(args.get("cases", "core"), args.number("parallel", 12));
                }
                case "send-phase" -> {
                    cluster.start();
                    yield Ledger.send(cluster, args, out);
                }
                case "verify-phase" -> {
                    if (Boolean.parseBoolean(args.get("masters", "true"))) {
                        cluster.start();
                    } else {
                        cluster.startClients();
                    }
                    yield Ledger.verify(cluster, args, out);
                }
                case "fixture-phase" -> {
                    cluster.start();
                    yield Fixture.verify(cluster, args, out);
                }
                case "member" -> Member.run(cluster, args, out);
                case "load" -> {
                    cluster.start();
                    yield Load.run(cluster, args, out);
                }
                default -> throw new IllegalArgumentException("no phase is named " + what);
            };
        }
        // The client's timers are not daemons in every release.
        System.exit(code);
    }
}
