package io.ferromq.e2e.admin;

import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.protocol.body.ClusterInfo;
import org.apache.rocketmq.common.protocol.route.BrokerData;

/** Brokers and name servers as wholes: cluster list, figures, configuration, write permission. */
final class BrokerCases {
    private BrokerCases() {
    }

    static void add(Suite suite, Admin a) {
        suite.add("cluster-info", Group.CORE, () -> clusterInfo(a));
        suite.add("broker-figures", Group.CORE, () -> figures(a));
        suite.add("broker-config", Group.CORE, () -> config(a));
        suite.add("broker-figures-all", Group.EXTRA, () -> allFigures(a));
        suite.add("broker-config-retention", Group.EXTRA, () -> change(a, "fileReservedTime", "49", "50"));
        suite.add("name-server-config", Group.EXTRA, () -> nameServerConfig(a));
        suite.add("clean-up-calls", Group.EXTRA, () -> cleanUp(a));
        suite.add("mqadmin-commands", Group.ALONE, () -> commands(a));
        suite.add("write-permission", Group.ALONE, () -> writePermission(a));
    }

    private static String clusterInfo(Admin a) throws Exception {
        ClusterInfo info = a.cluster();
        int brokers = 0;
        for (Map.Entry<String, java.util.Set<String>> cluster : info.getClusterAddrTable().entrySet()) {
            for (String name : cluster.getValue()) {
                BrokerData b = info.getBrokerAddrTable().get(name);
                that(b != null, "broker " + name + " has addresses");
                equal(name, b.getBrokerName(), "name in the broker's data");
                equal(cluster.getKey(), b.getCluster(), "cluster of " + name);
                that(b.getBrokerAddrs().values().stream().allMatch(s -> s.matches(".+:\\d+")), "addresses of " + name + ": " + b.getBrokerAddrs());
                brokers += b.getBrokerAddrs().size();
            }
        }
        that(brokers > 0, "there are brokers");
        return brokers + " brokers";
    }

    private static final List<String> FIGURES = List.of("brokerVersionDesc", "brokerVersion", "putTps", "getTransferedTps", "bootTimestamp",
            "commitLogMinOffset", "commitLogMaxOffset", "commitLogDiskRatio", "consumeQueueDiskRatio", "msgPutTotalTodayNow",
            "msgGetTotalTodayNow", "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning", "msgGetTotalTodayMorning",
            "msgGetTotalYesterdayMorning", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity",
            "pullThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
            "earliestMessageTimeStamp", "runtime", "pageCacheLockTimeMills", "dispatchBehindBytes", "getTotalTps",
            "getFoundTps", "getMissTps", "putMessageSizeTotal", "putMessageAverageSize");

    private static String figures(Admin a) throws Exception {
        int keys = 0;
        for (String address : a.masters().values()) {
            Map<String, String> table = a.tools.fetchBrokerRuntimeStats(address).getTable();
            List<String> missing = FIGURES.stream().filter(k -> !table.containsKey(k)).toList();
            that(missing.isEmpty(), address + " leaves out " + missing);
            equal("V4_9_7", table.get("brokerVersionDesc"), "version text");
            equal("407", table.get("brokerVersion"), "version number");
            Long.parseLong(table.get("commitLogMaxOffset"));
            Double.parseDouble(table.get("commitLogDiskRatio"));
            // What clusterList takes apart; blank in a broker's first seconds.
            for (String rates : List.of("putTps", "getTransferedTps")) {
                Check.eventually(rates + " of " + address,
                        () -> Double.valueOf(a.tools.fetchBrokerRuntimeStats(address).getTable().get(rates).trim().split(" ")[0]));
            }
            keys = table.size();
        }
        return keys + " figures";
    }

    private static String config(Admin a) throws Exception {
        String address = a.masters().values().iterator().next();
        Properties config = a.tools.getBrokerConfig(address);
        for (String key : List.of("brokerName", "brokerClusterName", "brokerId", "listenPort", "brokerRole", "flushDiskType",
                "fileReservedTime", "deleteWhen", "mappedFileSizeCommitLog", "namesrvAddr", "autoCreateTopicEnable")) {
            that(config.containsKey(key), "configuration has " + key);
        }
        change(a, "shortPollingTimeMills", "1500", "2500");
        return config.size() + " keys";
    }

    /** Changes a key while the broker runs, and puts it back. */
    private static String change(Admin a, String key, String one, String other) throws Exception {
        String address = a.masters().values().iterator().next();
        String before = a.tools.getBrokerConfig(address).getProperty(key);
        that(before != null, key + " is told");
        String after = before.equals(one) ? other : one;
        for (String value : List.of(after, before)) {
            Properties change = new Properties();
            change.setProperty(key, value);
            a.tools.updateBrokerConfig(address, change);
            equal(value, a.tools.getBrokerConfig(address).getProperty(key), "changed value of " + key);
        }
        return key + " " + before + " to " + after + " and back";
    }

    /** What dashboards take apart besides: latencies, and the disk's size as text. */
    private static String allFigures(Admin a) throws Exception {
        for (String address : a.masters().values()) {
            Map<String, String> table = a.tools.fetchBrokerRuntimeStats(address).getTable();
            List<String> missing = List.of("putMessageEntireTimeMax", "getMessageEntireTimeMax", "putMessageDistributeTime", "putLatency99",
                    "putLatency999", "remainTransientStoreBufferNumbs").stream().filter(k -> !table.containsKey(k)).toList();
            that(missing.isEmpty(), address + " leaves out " + missing);
            that(table.get("commitLogDirCapacity").matches("Total : [0-9.]+ \\w+, Free : [0-9.]+ \\w+\\."), "commitLogDirCapacity: " + table.get("commitLogDirCapacity"));
        }
        return "6 more figures";
    }

    private static String nameServerConfig(Admin a) throws Exception {
        Map<String, Properties> all = a.tools.getNameServerConfig(a.tools.getNameServerAddressList());
        for (Map.Entry<String, Properties> one : all.entrySet()) {
            that(one.getValue().containsKey("listenPort"), one.getKey() + " tells its listenPort");
        }
        return all.size() + " name servers";
    }

    private static String cleanUp(Admin a) throws Exception {
        for (String address : a.masters().values()) {
            that(a.tools.cleanExpiredConsumerQueueByAddr(address), "expired consume queues are cleaned at " + address);
            that(a.tools.deleteExpiredCommitLogByAddr(address), "expired log files are deleted at " + address);
        }
        return "2 calls";
    }

    /** The command line of the tools prints tables; an error shows as an exception's name in them. */
    private static String commands(Admin a) throws Exception {
        String topic = a.topic("commands", 2);
        a.send(topic, 4);
        String cluster = a.clusterName();
        String broker = a.masters().keySet().iterator().next();
        String address = a.masters().get(broker);
        Map<String, String> wanted = new HashMap<>();
        wanted.put("clusterList", broker);
        wanted.put("clusterList -m", broker);
        wanted.put("topicList", topic);
        wanted.put("topicRoute -t " + topic, broker);
        wanted.put("topicStatus -t " + topic, broker);
        wanted.put("topicClusterList -t " + topic, cluster);
        wanted.put("brokerStatus -b " + address, "commitLogMaxOffset");
        wanted.put("getBrokerConfig -b " + address, "brokerClusterName");
        wanted.put("updateTopic -c " + cluster + " -t " + topic + " -r 3 -w 3", "success");
        wanted.put("updateSubGroup -c " + cluster + " -g " + a.group("cmd"), "success");
        for (Map.Entry<String, String> e : wanted.entrySet()) {
            String text = Mqadmin.run(a.namesrv, e.getKey());
            that(!text.contains("Exception"), e.getKey() + " printed: " + text);
            that(text.contains(e.getValue()), e.getKey() + " does not name " + e.getValue() + ": " + text);
        }
        return wanted.size() + " commands";
    }

    private static String writePermission(Admin a) throws Exception {
        String topic = a.topic("wipe", 2);
        String broker = a.masters().keySet().iterator().next();
        for (String names : a.tools.getNameServerAddressList()) {
            int wiped = a.tools.wipeWritePermOfBroker(names, broker);
            that(wiped > 0, "topics wiped: " + wiped);
            equal(4, a.queueData(topic, broker).getPerm(), "permission after the wipe");
            equal(wiped, a.tools.addWritePermOfBroker(names, broker), "topics added back");
            equal(6, a.queueData(topic, broker).getPerm(), "permission after the add");
        }
        Check.until("sends work again", () -> a.send(topic, 2).size() == 2);
        return broker;
    }
}
