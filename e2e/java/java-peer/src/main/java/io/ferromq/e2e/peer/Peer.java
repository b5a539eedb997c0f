package io.ferromq.e2e.peer;

import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Json;
import java.io.FileInputStream;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.common.TlsMode;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Java's own name server and broker in one process, to be compared with and to write stores.
 *
 * <p>{@code namesrv --port N}, {@code broker --namesrv ADDR --port N --store DIR [--conf FILE] [--set k=v]...}, or
 * {@code both} with the options of both ({@code --namesrv-port N}). Prints one JSON line {@code {"ready":...}} when it
 * serves. Ends in good order when standard input closes or on SIGTERM.
 */
public final class Peer {
    private Peer() {
    }

    public static void main(String[] argv) throws Exception {
        // What the start-up classes of both programs do first; without it they speak as release 0.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Args args = new Args(argv);
        String what = args.words().isEmpty() ? "both" : args.words().get(0);
        NamesrvController names = null;
        BrokerController broker = null;
        String namesrv = args.get("namesrv", null);
        if (what.equals("namesrv") || what.equals("both")) {
            int port = args.number("namesrv-port", args.number("port", 9876));
            if (what.equals("both")) {
                port = Integer.parseInt(args.need("namesrv-port"));
            }
            names = names(port, args.need("home"));
            namesrv = "127.0.0.1:" + port;
        }
        if (what.equals("broker") || what.equals("both")) {
            broker = broker(args, namesrv);
        }
        NamesrvController stopNames = names;
        BrokerController stopBroker = broker;
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (stopBroker != null) {
                stopBroker.shutdown();
            }
            if (stopNames != null) {
                stopNames.shutdown();
            }
        }));
        System.out.println(Json.text(Json.object("ready", what, "namesrv", namesrv)));
        System.out.flush();
        while (System.in.read() >= 0) {
            // What is written to us does not matter, only the end.
        }
        System.exit(0);
    }

    private static NamesrvController names(int port, String home) throws Exception {
        NamesrvConfig config = new NamesrvConfig();
        config.setRocketmqHome(home);
        config.setKvConfigPath(home + "/kvConfig.json");
        config.setConfigStorePath(home + "/namesrv.properties");
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(port);
        NamesrvController names = new NamesrvController(config, server);
        if (!names.initialize()) {
            throw new IllegalStateException("the name server refused to initialise");
        }
        names.start();
        return names;
    }

    private static BrokerController broker(Args args, String namesrv) throws Exception {
        BrokerConfig config = new BrokerConfig();
        NettyServerConfig server = new NettyServerConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        Properties given = new Properties();
        if (args.get("conf", null) != null) {
            try (FileInputStream in = new FileInputStream(args.need("conf"))) {
                given.load(in);
            }
        }
        for (String pair : args.all("set")) {
            int at = pair.indexOf('=');
            given.setProperty(pair.substring(0, at), pair.substring(at + 1));
        }
        config.setBrokerIP1("127.0.0.1");
        config.setBrokerIP2("127.0.0.1");
        config.setBrokerName("broker-java");
        MixAll.properties2Object(given, config);
        MixAll.properties2Object(given, server);
        MixAll.properties2Object(given, store);
        config.setNamesrvAddr(namesrv);
        config.setRocketmqHome(args.need("home"));
        int port = Integer.parseInt(args.need("port"));
        server.setListenPort(port);
        store.setHaListenPort(port + 1);
        String dir = args.need("store");
        store.setStorePathRootDir(dir);
        store.setStorePathCommitLog(dir + "/commitlog");
        // As the start-up class does.
        NettyClientConfig client = new NettyClientConfig();
        client.setUseTLS(Boolean.parseBoolean(System.getProperty(TlsSystemConfig.TLS_ENABLE,
            String.valueOf(TlsSystemConfig.tlsMode == TlsMode.ENFORCING))));
        BrokerController broker = new BrokerController(config, server, client, store);
        broker.getConfiguration().registerConfig(given);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker refused to initialise on " + dir);
        }
        broker.start();
        return broker;
    }
}
