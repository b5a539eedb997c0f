//! Settings of the name server, with Java's key names.

use std::path::PathBuf;

use ferromq_remoting::address_server;

ferromq_daemon::settings! {
    /// Settings of the name server.
    pub struct NamesrvSettings {
        /// Port that brokers and clients connect to; 0 takes a free one.
        listen_port: u16 = 9876, "listenPort", range: 0..=65_535, unit: "port", important: true;
        /// Address to listen on.
        bind_address: String = "0.0.0.0".to_owned(), "bindAddress", important: true;
        /// Port of /livez, /readyz and /metrics; 0 is none.
        http_port: u16 = 0, "httpPort", range: 0..=65_535, unit: "port", important: true;
        /// File of the key-value configuration.
        kv_config_path: String = home("namesrv/kvConfig.json"), "kvConfigPath", important: true;
        /// File that changed settings are saved to; the file given with -c, if any.
        config_store_path: String = home("namesrv/namesrv.properties"), "configStorePath", important: true;
        /// Whether routes carry the order configuration of their topic.
        order_message_enable: bool = false, "orderMessageEnable", live: true, important: true;
        /// Keys that cannot be changed by request 318, with ; between them.
        config_black_list: String = "configBlackList;configStorePath;kvConfigPath".to_owned(), "configBlackList";
        /// A connection on which nothing is read or written for this long is closed.
        idle_seconds: u32 = 120, "serverChannelMaxIdleTimeSeconds", range: 1..=86_400, unit: "s";
        /// Length of the kernel's queue of connections not yet accepted.
        backlog: i32 = 1024, "serverSocketBacklog", range: 1..=65_535, unit: "connections";
        /// What all connections may buffer together, beside 64 KiB each; 0: a quarter of the container's memory.
        connection_buffer_bytes: u64 = 0, "connectionBufferBytes", range: 0..=1_099_511_627_776, unit: "bytes";
        /// Time after the start until /readyz says yes, for brokers to register; 0 outside Kubernetes.
        warm_up_millis: u64 = 0, "warmUpMillis", range: 0..=600_000, unit: "ms";
        /// Name servers that clients and brokers find at /rocketmq/nsaddr of httpPort, `host:port` with ; between; empty is
        /// no such page.
        address_list: String = String::new(), "addressList", live: true;
        /// Whether the route of a topic that is unknown here is asked for at the name servers of another environment.
        cluster_test: bool = false, "clusterTest";
        /// Name of that environment, a unit of the address server.
        product_env_name: String = "center".to_owned(), "productEnvName";
        /// Name servers of that environment; empty asks the address server for its list.
        product_env_namesrv_addr: String = String::new(), "productEnvNamesrvAddr";
        /// The address server, `host` or `host:port` (default 8080).
        rmq_address_server_domain: String = address_server::DEFAULT_DOMAIN.to_owned(), "rmqAddressServerDomain";
        /// Last part of its path, `http://DOMAIN/rocketmq/SUBGROUP`.
        rmq_address_server_sub_group: String = address_server::DEFAULT_SUB_GROUP.to_owned(), "rmqAddressServerSubGroup";
        /// Names of brokers, with ; between: once each of them has registered a master, /readyz does not wait longer.
        expected_brokers: String = String::new(), "expectedBrokers";
        /// Log level: error, warn, info, debug, trace, or target=level pairs.
        log_level: String = "info".to_owned(), "logLevel", live: true;
        /// Log format: text or json.
        log_format: String = "text".to_owned(), "logFormat", live: true;
    }
    without_effect {
        "rocketmqHome" = "",
        "serverWorkerThreads" = "8",
        "serverCallbackExecutorThreads" = "0",
        "serverSelectorThreads" = "3",
        "serverOnewaySemaphoreValue" = "256",
        "serverAsyncSemaphoreValue" = "64",
        "serverSocketSndBufSize" = "0",
        "serverSocketRcvBufSize" = "0",
        "writeBufferHighWaterMark" = "0",
        "writeBufferLowWaterMark" = "0",
        "serverPooledByteBufAllocatorEnable" = "true",
        "useEpollNativeSelector" = "false",
    }
}

fn home(file: &str) -> String {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    home.join(file).to_string_lossy().into_owned()
}

impl NamesrvSettings {
    /// Whether request 318 may not touch a key.
    pub fn is_black_listed(&self, key: &str) -> bool {
        const ALWAYS: [&str; 4] = [
            "configBlackList",
            "configStorePath",
            "kvConfigPath",
            "rocketmqHome",
        ];
        ALWAYS.contains(&key) || self.config_black_list.split(';').any(|k| k.trim() == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferromq_daemon::Properties;

    #[test]
    fn a_java_file_is_accepted() {
        let file =
            "rocketmqHome=/opt/rocketmq\nlistenPort=10000\nserverWorkerThreads=16\nclusterTest=false\n";
        let (settings, notes) = NamesrvSettings::from_properties(&Properties::parse(file).unwrap()).unwrap();
        assert_eq!(settings.listen_port, 10_000);
        assert_eq!(notes.without_effect, ["rocketmqHome", "serverWorkerThreads"]);
        assert!(notes.unknown.is_empty());
    }

    #[test]
    fn the_black_list_always_has_its_core() {
        let mut settings = NamesrvSettings::default();
        settings.set("configBlackList", "listenPort; httpPort").unwrap();
        for key in [
            "listenPort",
            "httpPort",
            "configBlackList",
            "kvConfigPath",
            "configStorePath",
            "rocketmqHome",
        ] {
            assert!(settings.is_black_listed(key), "{key}");
        }
        assert!(!settings.is_black_listed("orderMessageEnable"));
    }
}
