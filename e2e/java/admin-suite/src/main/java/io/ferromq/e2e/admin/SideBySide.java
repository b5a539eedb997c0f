package io.ferromq.e2e.admin;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Json;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The same commands of mqadmin against two clusters in the same state, and their outputs beside each other.
 *
 * <p>What must differ (addresses, times, ids, process numbers) is replaced by a word before the comparison; columns are
 * not compared by their width. Each command prints one JSON line {@code {"case","ok","detail"}}; the detail of a failed one
 * has the lines that only one side printed, ours with {@code -} and Java's with {@code +}.
 */
final class SideBySide {
    /** How two outputs are compared. */
    enum Mode {
        /** Line by line in order. */
        LINES,
        /** Line by line in any order: the order is that of a hash table. */
        ANY_ORDER,
        /** The first word of each line, in any order: the rest are figures of a process. */
        NAMES,
        /** The codes of the errors: each has texts of its own. */
        CODES,
        /** Not at all, for the reason given; ours must not fail. */
        DIFFERENT,
        /** Not at all, for the reason given; either may fail. */
        REFUSED
    }

    private record Step(String command, Mode mode, String why) {
    }

    private final PrintStream out;
    private final Path work;
    private final Side ours;
    private final Side javas;
    private final List<Step> steps = new ArrayList<>();

    SideBySide(PrintStream out, Path work, String ours, String javas) {
        this.out = out;
        this.work = work;
        this.ours = new Side("ours", ours);
        this.javas = new Side("javas", javas);
    }

    /** One of the clusters. */
    private final class Side {
        final String name;
        final Admin admin;
        final Map<String, String> words = new TreeMap<>();
        final List<MessageExt> received = new ArrayList<>();
        DefaultMQProducer producer;
        DefaultMQPushConsumer consumer;

        Side(String name, String namesrv) {
            this.name = name;
            admin = new Admin(namesrv, name);
        }

        /** The state that the commands look at. */
        void prepare() throws Exception {
            admin.start();
            words.put("{namesrv}", admin.namesrv);
            words.put("{broker}", admin.masters().get("broker-a"));
            words.put("{export}", work.resolve("export-" + name).toString());
            Check.equal("DefaultCluster", admin.clusterName(), "name of the cluster");
            run("updateTopic -c DefaultCluster -t Side -r 4 -w 4");
            run("updateTopic -c DefaultCluster -t Tracked -r 1 -w 1");
            Check.until("Side is routed", () -> admin.tools.examineTopicRouteInfo("Side").getQueueDatas().size() == 1);
            Check.until("Tracked is routed", () -> admin.tools.examineTopicRouteInfo("Tracked").getQueueDatas().size() == 1);
            producer = admin.configure(new DefaultMQProducer("SideProducers"));
            producer.start();
            for (int i = 0; i < 12; i++) {
                Message m = new Message("Side", i % 2 == 0 ? "Even" : "Odd", "key-" + i, ("body " + i).getBytes(StandardCharsets.UTF_8));
                SendResult sent = producer.send(m, new MessageQueue("Side", "broker-a", i % 4));
                words.put("{id" + i + "}", sent.getMsgId());
                words.put("{offset-id" + i + "}", sent.getOffsetMsgId());
            }
            consumer = admin.consumer("SideReaders", "Side", received);
            Check.until("all is received", () -> Admin.size(received) == 12);
            DefaultMQPushConsumer offline = admin.consumer("OfflineReaders", "Side", new ArrayList<>());
            for (String group : List.of("SideReaders", "OfflineReaders")) {
                Check.until(group + " has saved its progress, also in its retry topic",
                        () -> consumed(group) == 12 && admin.tools.examineConsumeStats(group).getOffsetTable().size() == 5);
            }
            offline.shutdown();
            Check.until("the offline group is offline", () -> {
                try {
                    admin.tools.examineConsumerConnectionInfo("OfflineReaders");
                    return false;
                } catch (org.apache.rocketmq.client.exception.MQBrokerException e) {
                    return e.getResponseCode() == 206;
                }
            });
        }

        private long consumed(String group) throws Exception {
            return admin.tools.examineConsumeStats(group, "Side").getOffsetTable().values().stream().mapToLong(o -> o.getConsumerOffset()).sum();
        }

        String run(String command) {
            String filled = command;
            for (Map.Entry<String, String> e : words.entrySet()) {
                filled = filled.replace(e.getKey(), e.getValue());
            }
            return Mqadmin.run(admin.namesrv, filled + " -n " + admin.namesrv);
        }

        void close() {
            if (consumer != null) {
                consumer.shutdown();
            }
            if (producer != null) {
                producer.shutdown();
            }
            admin.close();
        }

        private String normal(String line) {
            // Columns are as wide as their longest text.
            String s = line.replaceAll("\\s+", " ").trim();
            for (Map.Entry<String, String> e : words.entrySet()) {
                s = s.replace(e.getValue(), e.getKey());
            }
            s = s.replace(admin.namesrv, "{namesrv}").replace(name + "_g_", "{side}_g_");
            for (String[] r : REPLACED) {
                s = Pattern.compile(r[0]).matcher(s).replaceAll(r[1]);
            }
            return s;
        }

        private List<String> normal(String text, Mode mode) {
            List<String> lines = new ArrayList<>();
            for (String line : text.split("\n")) {
                String s = normal(line);
                // Remarks of the JVM and of the logging are no output of the command, and a stack tells of this program.
                // The topics of transactions are told to nobody by our broker: no client has business there.
                if (s.isEmpty() || s.startsWith("RocketMQLog:WARN") || s.startsWith("OpenJDK ") || s.startsWith("at ")
                        || s.startsWith("... ") || s.contains("RMQ_SYS_TRANS_") || s.startsWith("ferromqVersion")) {
                    continue;
                }
                if (mode == Mode.CODES) {
                    Matcher code = Pattern.compile("CODE: ?\\d+").matcher(s);
                    if (code.find()) {
                        lines.add(code.group());
                    }
                    continue;
                }
                lines.add(mode == Mode.NAMES ? s.split("[ =:]")[0] : s);
            }
            if (mode != Mode.LINES) {
                lines.sort(null);
            }
            return lines;
        }
    }

    private static final String[][] REPLACED = {
        {"\\d{4}-\\d\\d-\\d\\d[ #]\\d\\d:\\d\\d:\\d\\d([,:.]\\d+)?", "TIME"},
        {"(127\\.0\\.0\\.1|\\d+\\.\\d+\\.\\d+\\.\\d+)@[^ ,\\]\"]+", "CLIENT"},
        {"/?\\b\\d+\\.\\d+\\.\\d+\\.\\d+:\\d{4,5}\\b", "ADDRESS"},
        {"\\b([0-9A-F]{32}|[0-9A-F]{56})\\b", "ID"},
        {"\\b1[6-9]\\d{11}\\b", "MILLIS"},
        {"\\b20\\d{15}\\b", "TIME"},
        // Rates, and how long something took.
        {"\\b\\d+\\.\\d{2,}\\b(\\(\\d+,\\d+ms\\))?", "RATE"},
        {"\\brt=\\d+ms", "rt=N"},
        // Topics of a broker, among them those of transactions.
        {"\\bOK, \\d+$", "OK, N"},
        {"\\b(PUSH CLUSTERING|OFFLINE) \\d+ (\\d+)$", "$1 RATE $2"},
        // Records of the brokers' own, such as those of moved offsets, are not of one length.
        {"\\b(commitLogOffset=|CommitLog Offset: )\\d+", "$1N"},
        {"\\b(true|false) \\d+$", "$1 N"},
        {"commitLogDiskRatio_\\S+", "commitLogDiskRatio_DIR"},
    };

    private void same(String command) {
        steps.add(new Step(command, Mode.LINES, null));
    }

    private void sameSet(String command) {
        steps.add(new Step(command, Mode.ANY_ORDER, null));
    }

    private void sameNames(String command) {
        steps.add(new Step(command, Mode.NAMES, null));
    }

    private void sameCodes(String command) {
        steps.add(new Step(command, Mode.CODES, null));
    }

    private void refused(String command, String why) {
        steps.add(new Step(command, Mode.REFUSED, why));
    }

    private void different(String command, String why) {
        steps.add(new Step(command, Mode.DIFFERENT, why));
    }

    /** Runs all; returns the exit status, also of what fails before the first command. */
    int runAll() {
        try {
            return run();
        } catch (Throwable t) {
            t.printStackTrace();
            return 2;
        }
    }

    private int run() throws Exception {
        try {
            ours.prepare();
            javas.prepare();
            commands();
            int failed = 0;
            for (Step step : steps) {
                failed += one(step) ? 0 : 1;
            }
            out.println(Json.text(Json.object("summary", Json.object("passed", steps.size() - failed, "failed", failed))));
            return failed == 0 ? 0 : 1;
        } finally {
            ours.close();
            javas.close();
        }
    }

    private boolean one(Step step) {
        List<String> a = ours.normal(ours.run(step.command), step.mode);
        List<String> b = javas.normal(javas.run(step.command), step.mode);
        boolean ok;
        Object detail;
        if (step.mode == Mode.REFUSED) {
            ok = true;
            detail = step.why;
        } else if (step.mode == Mode.DIFFERENT) {
            ok = a.stream().noneMatch(l -> l.contains("Exception"));
            detail = ok ? step.why : a;
        } else {
            ok = a.equals(b);
            detail = ok ? a.size() + " lines" : difference(a, b);
        }
        out.println(Json.text(Json.object("case", step.command, "ok", ok, "detail", String.valueOf(detail))));
        out.flush();
        return ok;
    }

    private static List<String> difference(List<String> a, List<String> b) {
        List<String> lines = new ArrayList<>();
        List<String> left = new ArrayList<>(b);
        for (String line : a) {
            if (!left.remove(line)) {
                lines.add("- " + line);
            }
        }
        left.forEach(line -> lines.add("+ " + line));
        return lines.isEmpty() ? List.of("the order differs", String.valueOf(a), String.valueOf(b)) : lines;
    }

    private void commands() {
        // What is there.
        same("clusterList -m");
        same("clusterList");
        sameSet("topicList");
        sameSet("topicList -c");
        same("topicRoute -t Side");
        same("topicRoute -t Unknown");
        same("topicStatus -t Side");
        same("topicStatus -t Unknown");
        same("topicClusterList -t Side");
        same("allocateMQ -t Side -i 10.0.0.1,10.0.0.2");
        sameNames("brokerStatus -b {broker}");
        sameNames("getConsumerConfig -g SideReaders");
        same("getConsumerConfig -g SideReaders");
        // Messages.
        sameSet("queryMsgById -i {offset-id3}");
        sameSet("queryMsgByUniqueKey -t Side -i {id3}");
        sameSet("queryMsgByKey -t Side -k key-5");
        sameSet("queryMsgByKey -t Side -k nobody");
        sameSet("queryMsgByOffset -t Side -b broker-a -i 1 -o 1");
        sameSet("queryMsgByOffset -t Side -b broker-a -i 1 -o 99");
        sameSet("printMsg -t Side -d true");
        sameSet("printMsg -t Side -d true -s Odd");
        sameSet("printMsgByQueue -t Side -a broker-a -i 2 -p true -d true");
        sameSet("printMsgByQueue -t Side -a broker-a -i 2 -f true");
        sameSet("queryCq -t Side -q 0 -i 0 -c 3 -b {broker}");
        different("queryCq -t Side -q 0 -i 0 -c 3 -b {broker} -g SideReaders",
                "Java's broker says eval=false of entries that the group's filter lets through");
        // Groups and clients.
        sameSet("consumerConnection -g SideReaders");
        same("consumerConnection -g OfflineReaders");
        same("producerConnection -g SideProducers -t Side");
        same("producerConnection -g Nobody -t Side");
        same("consumerProgress -g SideReaders");
        same("consumerProgress -g OfflineReaders");
        same("consumerProgress -g Nobody");
        sameSet("consumerProgress");
        sameSet("brokerConsumeStats -b {broker}");
        sameSet("producer -b {broker}");
        sameNames("consumerStatus -g SideReaders");
        same("consumerStatus -g Nobody");
        sameNames("statsAll -t Side");
        // Changes of topics and groups.
        same("updateTopic -b {broker} -t Made -r 2 -w 3 -p 6");
        same("updateTopic -b {broker} -t Ordered -r 2 -w 2 -o true");
        sameCodes("updateTopic -b {broker} -t bad!name");
        sameCodes("updateTopic -b {broker} -t TBW102");
        same("topicRoute -t Made");
        same("updateTopicPerm -b {broker} -t Made -p 4");
        same("topicRoute -t Made");
        same("updateTopicPerm -c DefaultCluster -t Made -p 6");
        same("updateOrderConf -t Made -m put -v broker-a:2");
        same("updateOrderConf -t Made -m get");
        same("updateOrderConf -t Made -m delete");
        same("updateOrderConf -t Made -m get");
        same("updateSubGroup -b {broker} -g MadeGroup -r 3 -q 2 -s true -m false -d false");
        same("updateSubGroup -c DefaultCluster -g MadeGroup -r 4");
        same("getConsumerConfig -g MadeGroup");
        same("deleteSubGroup -b {broker} -g MadeGroup -r true");
        same("deleteTopic -c DefaultCluster -t Made");
        same("topicRoute -t Made");
        same("topicStatus -t Made");
        // Progress.
        same("cloneGroupOffset -s OfflineReaders -d ClonedReaders -t Side");
        same("consumerProgress -g ClonedReaders");
        same("resetOffsetByTime -g OfflineReaders -t Side -s 0");
        same("consumerProgress -g OfflineReaders");
        same("resetOffsetByTime -g OfflineReaders -t Side -s now");
        same("skipAccumulatedMessage -g OfflineReaders -t Side");
        same("resetOffsetByTime -g Nobody -t Side -s 0");
        // Permissions, key-value configuration, settings.
        same("wipeWritePerm -b broker-a");
        same("topicRoute -t Side");
        same("wipeWritePerm -b nobody");
        same("addWritePerm -b broker-a");
        same("topicRoute -t Side");
        same("updateKvConfig -s SideSpace -k k -v v");
        same("deleteKvConfig -s SideSpace -k k");
        same("updateNamesrvConfig -k orderMessageEnable -v true");
        sameCodes("updateNamesrvConfig -k configStorePath -v x");
        same("updateBrokerConfig -b {broker} -k fileReservedTime -v 71");
        refused("updateBrokerConfig -b {broker} -k brokerConfigPath -v x", "refused from 4.9.8 on, and by us");
        different("getNamesrvConfig", "each name server has settings of its own");
        different("getBrokerConfig -b {broker}", "each broker has settings of its own");
        // Cleaning.
        same("cleanExpiredCQ -b {broker}");
        same("cleanExpiredCQ -c DefaultCluster");
        same("cleanUnusedTopic -b {broker}");
        same("deleteExpiredCommitLog -b {broker}");
        // Sending and receiving by the tools.
        sameSet("sendMessage -t Tracked -p hello -k tracked -c Tag -b broker-a -i 0");
        sameSet("consumeMessage -t Tracked -c 1 -b broker-a -i 0 -o 0 -g ToolReaders");
        same("sendMsgStatus -b broker-a -c 2");
        same("checkMsgSendRT -t Tracked -a 2");
        // Access control, which is off.
        refused("getAclConfig -b {broker}", "Java's broker does not answer, ours says that access control is off");
        refused("clusterAclConfigVersion -b {broker}", "Java's broker does not answer, ours says that access control is off");
        sameCodes("updateAclConfig -b {broker} -a someone -s 12345678");
        sameCodes("deleteAclConfig -b {broker} -a someone");
        sameCodes("updateGlobalWhiteAddr -b {broker} -g 10.0.0.1");
        // Exports.
        same("exportMetadata -c DefaultCluster -f {export}");
        same("exportConfigs -c DefaultCluster -f {export}");
        same("exportMetrics -c DefaultCluster -f {export}");
    }
}
