package io.ferromq.e2e.admin;

import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.WorkDir;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * What an administrator does with the official tools' library, as named cases; and the tools' own command line.
 *
 * <p>{@code suite --namesrv ADDR [--cases core|all|NAMES] [--prefix P] [--parallel N]}, or
 * {@code mqadmin --command LINE --namesrv ADDR}: one command of mqadmin, its output unchanged; {@code acl}: see {@link AclPhase}; or
 * {@code side-by-side --namesrv OURS --other JAVAS}: the same commands against two clusters, outputs compared.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        String work = WorkDir.of(args).toString();
        System.setProperty("rocketmq.client.logRoot", work);
        System.setProperty("rocketmq.client.logLevel", args.get("log-level", "WARN"));
        System.setProperty("rocketmq.home.dir", work);
        System.setProperty("user.home", work);
        // The tools insist on a logging file of their own and print a stack trace without it.
        Files.createDirectories(Path.of(work, "conf"));
        Files.writeString(Path.of(work, "conf", "logback_tools.xml"), "<configuration><root level=\"OFF\"/></configuration>");
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String prefix = args.get("prefix", "a" + Long.toString(System.currentTimeMillis(), 36));
        String what = args.words().isEmpty() ? "suite" : args.words().get(0);
        int code;
        if (what.equals("acl")) {
            System.exit(AclPhase.run(args, out));
        }
        if (what.equals("side-by-side")) {
            System.exit(new SideBySide(out, Path.of(work), args.need("namesrv"), args.need("other")).runAll());
        }
        try (Admin admin = new Admin(args.need("namesrv"), prefix)) {
            admin.start();
            code = switch (what) {
                case "suite" -> {
                    Suite suite = new Suite(out);
                    TopicCases.add(suite, admin);
                    BrokerCases.add(suite, admin);
                    GroupCases.add(suite, admin);
                    yield suite.run(args.get("cases", "core"), args.number("parallel", 8));
                }
                case "mqadmin" -> {
                    out.print(Mqadmin.run(args.need("namesrv"), args.need("command")));
                    yield 0;
                }
                default -> throw new IllegalArgumentException("no phase is named " + what);
            };
        }
        System.exit(code);
    }
}
